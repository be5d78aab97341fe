//! Hashes by which the names of a directory choose MDTs, as a test names them.

use sheen_wire::lmv::LmvHash;

use crate::lfs::dirstripe::hash_type;

/// Which hashes pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hashes {
    /// One of these types; any if there is none.
    types: Vec<LmvHash>,
    /// With one of these flags; 0 for any.
    with: u32,
    /// With none of these.
    without: u32,
}

impl Hashes {
    /// Reads names of hashes and flags; `None` for other words, and for a flag that is wanted and not.
    pub(super) fn read(value: &str) -> Option<Self> {
        let mut hashes = Self::default();
        for word in value.split(',') {
            match (flag(word), word.strip_prefix('^').map(flag)) {
                (Some(flag), _) => hashes.with |= flag,
                (None, Some(flag)) => hashes.without |= flag?,
                (None, None) => hashes.types.push(hash_type(word)?),
            }
        }
        (hashes.with & hashes.without == 0).then_some(hashes)
    }

    /// Whether this one does.
    pub(super) fn fit(&self, hash: LmvHash) -> bool {
        let is_of_type = self.types.is_empty() || self.types.contains(&hash.without_flags());
        let has_one = self.with == 0 || hash.0 & self.with != 0;
        is_of_type && has_one && hash.0 & self.without == 0
    }
}

/// A flag by its name, or its first letter, as Lustre's tool takes it.
fn flag(word: &str) -> Option<u32> {
    match word {
        "migrating" | "m" => Some(LmvHash::MIGRATION),
        "bad_type" | "badtype" | "b" => Some(LmvHash::BAD_TYPE),
        "lost_lmv" | "lostlmv" | "l" => Some(LmvHash::LOST_LMV),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_pass_by_type_and_flags() {
        let fits = |value, hash| Hashes::read(value).expect("hashes").fit(hash);
        let moving = LmvHash(LmvHash::CRUSH.0 | LmvHash::MIGRATION);
        assert!(fits("crush", LmvHash::CRUSH) && fits("fnv_1a_64,crush", moving));
        assert!(!fits("crush", LmvHash::FNV_1A_64) && !fits("crush", LmvHash::UNKNOWN));
        assert!(fits("migrating", moving) && !fits("^migrating", moving));
        assert!(fits("crush,^m", LmvHash::CRUSH) && !fits("crush,m", LmvHash::CRUSH));
        for wrong in ["bogus", "crush,bogus", "m,^m", "^crush", ""] {
            assert_eq!(Hashes::read(wrong), None, "{wrong}");
        }
    }
}
