//! Root squash: the superuser of a client that is not trusted so far is another user.

use crate::{Errno, Nid, NidList};

/// Whom root is taken for, and on which clients root stays root: what the parameters `root_squash`
/// and `nosquash_nids` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootSquash {
    /// User 0 means that no user is squashed.
    uid: u32,
    gid: u32,
    trusted: NidList,
}

impl RootSquash {
    /// User and group of root on the client `nid`; `None` if it is root.
    #[must_use]
    pub fn identity(&self, nid: Nid) -> Option<(u32, u32)> {
        (self.uid != 0 && !self.trusted.contains(nid)).then_some((self.uid, self.gid))
    }

    /// `root_squash`: `UID:GID`.
    #[must_use]
    pub fn root(&self) -> String {
        format!("{}:{}", self.uid, self.gid)
    }

    /// Sets `root_squash`; `0:0` squashes no user.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for anything but `UID:GID`.
    pub fn set_root(&mut self, text: &str) -> Result<(), Errno> {
        let (uid, gid) = text.trim().split_once(':').ok_or(Errno::EINVAL)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| Errno::EINVAL);
        (self.uid, self.gid) = (number(uid)?, number(gid)?);
        Ok(())
    }

    /// `nosquash_nids`: `NONE`, or NIDs and ranges of them.
    #[must_use]
    pub fn trusted(&self) -> String {
        self.trusted.to_string()
    }

    /// Sets `nosquash_nids`; `NONE` and `clear` make it empty.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for anything but a list of NIDs and ranges of them.
    pub fn set_trusted(&mut self, text: &str) -> Result<(), Errno> {
        self.trusted = text.parse().map_err(|_| Errno::EINVAL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_another_user_where_it_is_not_trusted() {
        let mut squash = RootSquash::default();
        let (near, far) = ("10.0.0.1@tcp".parse().unwrap(), "10.9.0.1@tcp".parse().unwrap());
        assert_eq!((squash.root(), squash.trusted()), ("0:0".to_owned(), "NONE".to_owned()));
        assert_eq!(squash.identity(near), None);
        squash.set_root("65534:100\n").unwrap();
        squash.set_trusted("10.0.0.*@tcp").unwrap();
        assert_eq!((squash.identity(near), squash.identity(far)), (None, Some((65534, 100))));
        assert_eq!(squash.root(), "65534:100");
        for wrong in ["", "1", "1:", "x:1", "1:-1", "1:2:3"] {
            assert_eq!(squash.set_root(wrong), Err(Errno::EINVAL), "{wrong}");
        }
        assert_eq!(squash.set_trusted("everyone"), Err(Errno::EINVAL));
        squash.set_trusted("clear").unwrap();
        assert_eq!(squash.identity(near), Some((65534, 100)));
    }
}
