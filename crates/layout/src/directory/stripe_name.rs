//! What a stripe is called in its master: `[FID]:number` (Lustre: `DFID":%u"` in `lod_object.c`).

use sheen_types::Fid;

/// The name of the stripe with this number in the index of its master, and in its own link EA.
#[must_use]
pub fn stripe_name(stripe: Fid, number: u32) -> String {
    format!("{stripe}:{number}")
}

/// The stripe and its number of such a name. `None` for any other one, also for one that is only written in another way:
/// each stripe has one name.
#[must_use]
pub fn parse_stripe_name(name: &[u8]) -> Option<(Fid, u32)> {
    let text = std::str::from_utf8(name).ok()?;
    let (fid, number) = text.rsplit_once(':')?;
    let (fid, number) = (fid.parse().ok()?, number.parse().ok()?);
    (stripe_name(fid, number) == text).then_some((fid, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stripes_come_back_and_other_ones_are_none() {
        let fid = Fid::new(0x2_4000_0400, 0x1f);
        let name = stripe_name(fid, 12);
        assert_eq!(name, "[0x240000400:0x1f:0x0]:12");
        assert_eq!(parse_stripe_name(name.as_bytes()), Some((fid, 12)));
        let foreign = [
            "[0x240000400:0x1f:0x0]",
            "[0x240000400:0x1f:0x0]:",
            "[0x240000400:0x1f:0x0]:012",
            "[0x240000400:0x1f:0x0]:+1",
            "[0x240000400:0x1f:0x0]:4294967296",
            "[0x240000400:0x01f:0x0]:12",
            "[0x240000400:31:0x0]:12",
            "0x240000400:0x1f:0x0:12",
            "a:1",
            "",
        ];
        for other in foreign {
            assert_eq!(parse_stripe_name(other.as_bytes()), None, "{other}");
        }
        assert_eq!(parse_stripe_name(b"[0x240000400:0x1f:0x0]:\xff"), None);
    }
}
