//! Extended attributes: one, their names, or all at once.

use bytes::Bytes;
use sheen_target::{Outcome, store_errno};
use sheen_types::Errno;
use sheen_types::limits::MESSAGE_BYTES_MAX;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetxattr, MdsGetxattrReply};

use crate::caller::{Caller, May};
use crate::inode::Inode;
use crate::{Mdt, xattrs};

/// All attributes of an inode, as the intent's reply lays them out.
#[derive(Default)]
pub(crate) struct AllXattrs {
    /// Names, each with its NUL.
    pub(crate) names: Bytes,
    /// Values, one behind the other.
    pub(crate) values: Bytes,
    /// Bytes of each value.
    pub(crate) lengths: Vec<u32>,
    /// Some are only for callers that may read the inode.
    pub(crate) has_user: bool,
}

/// Bytes of names and values that are answered at once, whatever room a client says it has: a message's, and an eighth
/// of it for what is beside them.
const REPLIED_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 8 * 7;

/// What names of attributes begin with that Linux protects as it does the data.
const USER: &str = "user.";

/// Whether clients see an attribute of an inode: the list of its names goes with the last of them.
fn is_shown(inode: &Inode, name: &str) -> bool {
    xattrs::is_shown(name) && (name != xattrs::LINK || inode.attributes.links > 0)
}

impl Mdt {
    /// MDS_GETXATTR. With no room given only the size is answered. A refusal has its buffers, empty.
    pub(crate) fn getxattr(&self, request: &MdsGetxattr) -> Outcome {
        let found = self.found_xattr(request);
        found.unwrap_or_else(|errno| Outcome::failed(errno, MdsGetxattrReply::default()))
    }

    fn found_xattr(&self, request: &MdsGetxattr) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        let inode = self.inode(asked.fid1)?;
        let value = if asked.valid.contains(Valid::XATTRLS) {
            self.xattr_names(&inode)?
        } else {
            let name = request.name.as_ref().ok_or(Errno::EPROTO)?;
            let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::ENODATA)?;
            self.xattr(&Caller::from(asked), &inode, name)?.ok_or(Errno::ENODATA)?
        };
        let room = asked.eadatasize as usize;
        if room != 0 && value.len() > room {
            return Err(Errno::ERANGE);
        }
        let body =
            MdtBody { valid: Valid::XATTR, eadatasize: value.len() as u32, ..MdtBody::default() };
        let eadata = if room == 0 { Bytes::new() } else { value };
        Ok(Outcome::ok(MdsGetxattrReply {
            mdt_body: Some(body),
            eadata,
            ..MdsGetxattrReply::default()
        }))
    }

    fn xattr(&self, caller: &Caller, inode: &Inode, name: &str) -> Result<Option<Bytes>, Errno> {
        // What is known of the size, and the FIDs of before, are no attributes of the file's: they are listed with none.
        if !is_shown(inode, name) && !xattrs::is_hidden(name) {
            return Ok(None);
        }
        if name.starts_with(USER) {
            self.check_user_xattr(caller, inode)?;
        }
        if name == xattrs::SOM {
            let record = self.size_record(inode.fid).map_err(store_errno)?;
            return Ok(record.and_then(|record| record.shown(self.sizes.era())));
        }
        let name = if name == xattrs::LUSTRE_LOV { xattrs::LOV } else { name };
        self.store.xattr(inode.fid, name).map_err(store_errno)
    }

    /// Values of `user.*` are for callers who may read the inode; names are for all.
    fn check_user_xattr(&self, caller: &Caller, inode: &Inode) -> Result<(), Errno> {
        caller.may(&*self.store, inode.fid, &inode.attributes, May::READ)
    }

    /// Whether a user may have the values of `user.*`.
    pub(crate) fn may_read_user(&self, caller: &Caller, inode: &Inode) -> Result<bool, Errno> {
        match self.check_user_xattr(caller, inode) {
            Ok(()) => Ok(true),
            Err(Errno::EACCES | Errno::EPERM) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn xattr_names(&self, inode: &Inode) -> Result<Bytes, Errno> {
        let mut names = Vec::new();
        for name in self.store.xattr_names(inode.fid).map_err(store_errno)? {
            if is_shown(inode, &name) {
                names.extend_from_slice(name.as_bytes());
                names.push(0);
            }
        }
        Ok(names.into())
    }

    /// All attributes that clients see; `None` if names or values take more than `room`, or both together more than
    /// one reply may. Nothing is copied then.
    pub(crate) fn all_xattrs(
        &self,
        inode: &Inode,
        room: usize,
    ) -> Result<Option<AllXattrs>, Errno> {
        let all = self.store.whole(inode.fid).map_err(store_errno)?.xattrs;
        let shown = || all.iter().filter(|(name, _)| is_shown(inode, name));
        let of_names: usize = shown().map(|(name, _)| name.len() + 1).sum();
        let of_values: usize = shown().map(|(_, value)| value.len()).sum();
        if of_names.max(of_values) > room || of_names + of_values > REPLIED_BYTES_MAX {
            return Ok(None);
        }
        let mut names = Vec::with_capacity(of_names);
        let mut values = Vec::with_capacity(of_values);
        let (mut lengths, mut has_user) = (Vec::new(), false);
        for (name, value) in shown() {
            has_user |= name.starts_with(USER);
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            values.extend_from_slice(value);
            lengths.push(value.len() as u32);
        }
        Ok(Some(AllXattrs { names: names.into(), values: values.into(), lengths, has_user }))
    }
}
