//! The command that ends a migration which was broken off, as operators type it.

use sheen_types::text::shell_word;
use sheen_wire::lmv::LmvHash;

/// The names of hashes, by type (Lustre: `mdt_hash_name`).
pub const HASH_NAMES: [&str; 5] = ["none", "all_char", "fnv_1a_64", "crush", "crush2"];

/// The command that ends the migration of the directory at `path` to stripes on `mdts`, in their order, by that hash. `path` is
/// quoted as shells need it.
#[must_use]
pub fn finishing_command(mdts: &[u16], hash: LmvHash, path: &[u8]) -> String {
    let mut distinct = mdts.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let wish = match mdts {
        [first, ..] if distinct.len() < mdts.len() => format!("-m {first} -C {}", mdts.len()),
        _ => {
            let all: Vec<String> = mdts.iter().map(u16::to_string).collect();
            format!("-m {}", all.join(","))
        }
    };
    let name = HASH_NAMES.get(hash.without_flags().0 as usize).copied().unwrap_or("none");
    format!("lfs migrate {wish} -H {name} {}", shell_word(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_ends_a_migration_names_mdts_hash_and_path_as_a_shell_reads_them() {
        let hash = LmvHash(LmvHash::CRUSH.0 | LmvHash::MIGRATION);
        for (mdts, path, command) in [
            (&[1][..], &b"/mnt/d"[..], "lfs migrate -m 1 -H crush /mnt/d"),
            (&[1, 0], b"a b", "lfs migrate -m 1,0 -H crush 'a b'"),
            (&[1, 0, 1, 0], b"-d", "lfs migrate -m 1 -C 4 -H crush ./-d"),
        ] {
            assert_eq!(finishing_command(mdts, hash, path), command);
        }
    }
}
