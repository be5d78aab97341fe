//! `lov.*.stripe*`: how the configuration combines OSTs where no layout says otherwise. As in Lustre a mount
//! keeps what is set there only to show it, and files are as the MDT makes them (`lod.*.stripe*`).

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_client::config::LovDesc;
use sheen_types::Errno;

use super::folder::Folder;
use super::values;

/// `LOV_MIN_STRIPE_SIZE`.
const STRIPE_BYTES_MIN: u64 = 64 << 10;
/// `LOV_DESC_STRIPE_SIZE_DEFAULT`.
const STRIPE_BYTES: u64 = 4 << 20;
/// `LOV_MAX_STRIPE_COUNT`.
const STRIPES_MAX: i64 = 2000;
/// `LOV_PATTERN_RAID0`, and that with `LOV_PATTERN_OVERSTRIPING`.
const PATTERNS: [u32; 2] = [1, 0x201];

/// Adds them.
pub(super) fn add(folder: &Folder<'_>, stripes: &Arc<Mutex<LovDesc>>) {
    type Setting =
        (&'static str, fn(&LovDesc) -> String, fn(&mut LovDesc, &str) -> Result<(), Errno>);
    let settings: [Setting; 4] = [
        ("stripesize", |it| it.stripe_size.to_string(), set_size),
        ("stripeoffset", |it| it.stripe_offset.cast_signed().to_string(), set_offset),
        ("stripecount", |it| count(it).to_string(), set_count),
        ("stripetype", |it| it.pattern.to_string(), set_pattern),
    ];
    for (leaf, read, write) in settings {
        folder.tune(
            leaf,
            stripes,
            move |it| read(&it.lock()),
            move |it, text| write(&mut it.lock(), text),
        );
    }
}

/// The last 16 bits count, of which all ones are all OSTs.
fn count(it: &LovDesc) -> i32 {
    i32::from(it.stripe_count.wrapping_add(1) as i16) - 1
}

/// Whole units of the least size, or the default for less than one.
fn set_size(it: &mut LovDesc, text: &str) -> Result<(), Errno> {
    it.stripe_size = match values::bytes(text, 1)? {
        bytes if bytes < STRIPE_BYTES_MIN => STRIPE_BYTES,
        bytes => bytes / STRIPE_BYTES_MIN * STRIPE_BYTES_MIN,
    };
    Ok(())
}

fn set_offset(it: &mut LovDesc, text: &str) -> Result<(), Errno> {
    let offset = values::signed_of_any_base(text)?;
    if !(-1..=STRIPES_MAX).contains(&offset) {
        return Err(Errno::ERANGE);
    }
    it.stripe_offset = offset.cast_unsigned();
    Ok(())
}

fn set_count(it: &mut LovDesc, text: &str) -> Result<(), Errno> {
    let count = i32::try_from(values::signed_of_any_base(text)?).map_err(|_| Errno::ERANGE)?;
    it.stripe_count = match count {
        ..=-2 => return Err(Errno::ERANGE),
        0 => 1,
        count => count.cast_unsigned(),
    };
    Ok(())
}

/// One that is not known is none.
fn set_pattern(it: &mut LovDesc, text: &str) -> Result<(), Errno> {
    let pattern = values::number_of_any_base(text)?.try_into().map_err(|_| Errno::ERANGE)?;
    it.pattern = if PATTERNS.contains(&pattern) { pattern } else { 0 };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_lustre_takes_them() {
        let mut it = LovDesc::default();
        let mut set = |size: &str, offset: &str, count: &str, pattern: &str| {
            let set = [
                set_size(&mut it, size),
                set_offset(&mut it, offset),
                set_count(&mut it, count),
                set_pattern(&mut it, pattern),
            ];
            let now = (it.stripe_size, it.stripe_offset, super::count(&it), it.pattern);
            (set.map(Result::err), now)
        };
        let all = u64::MAX;
        assert_eq!(set("1M", "-1", "-1", "1"), ([None; 4], (1 << 20, all, -1, 1)));
        assert_eq!(set("100000", "3", "0", "7"), ([None; 4], (65536, 3, 1, 0)));
        assert_eq!(set("10", "0", "4", "513"), ([None; 4], (4 << 20, 0, 4, 513)));
        let (inval, range) = (Some(Errno::EINVAL), Some(Errno::ERANGE));
        let refused = set("x", "2001", "-2", "-1");
        assert_eq!(refused, ([inval, range, range, inval], (4 << 20, 0, 4, 513)));
    }
}
