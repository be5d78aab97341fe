//! Why an MDT does not permit what concerns MDTs: the answer is `EPERM`, whatever the reason.

use rustix::process::geteuid;

/// What was not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// To migrate a directory.
    Migrate,
    /// To make a directory on MDTs of choice, in one piece or several, or to split or merge one.
    Make { is_striped: bool },
    /// To set the default of new directories.
    SetDefault,
    /// To remove a bare name.
    RemoveEntry,
}

/// The reason, as far as a client can know it.
pub(super) fn reason(refused: Refused) -> &'static str {
    reason_for(refused, geteuid().is_root())
}

fn reason_for(refused: Refused, is_root: bool) -> &'static str {
    match (refused, is_root) {
        (Refused::Migrate, false) => "only root can migrate directories",
        (Refused::RemoveEntry, false) => "only root can remove directory entries",
        (_, false) => {
            "only root, and users whose group is mdt.*.enable_remote_dir_gid, can choose MDTs"
        }
        (Refused::Migrate, true) => {
            "mdt.*.enable_dir_migration or mdt.*.enable_remote_dir is 0, or root is squashed (the log of the MDS says which)"
        }
        (Refused::RemoveEntry, true) => {
            "its inode is on the MDT of the name, where rm removes it, or root is squashed"
        }
        (Refused::Make { is_striped: true }, true) => {
            "mdt.*.enable_striped_dir is 0, or root is squashed"
        }
        (Refused::Make { is_striped: false }, true) => {
            "mdt.*.enable_remote_dir is 0, or root is squashed"
        }
        (Refused::SetDefault, true) => {
            "mdt.*.enable_remote_dir or mdt.*.enable_striped_dir is 0, or root is squashed"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_is_not_sent_to_parameters_that_do_not_concern_it() {
        for refused in [
            Refused::Migrate,
            Refused::Make { is_striped: true },
            Refused::SetDefault,
            Refused::RemoveEntry,
        ] {
            let (root, user) = (reason_for(refused, true), reason_for(refused, false));
            assert!(user.starts_with("only root"), "{user}");
            assert!(!root.contains("only root"), "{root}");
        }
        let text = reason_for(Refused::Migrate, false);
        assert!(!text.contains("gid"), "a group's members cannot end a migration: {text}");
    }
}
