//! The bit sets and numbers of metadata and object requests.

use sheen_types::access::May;

use crate::{wire_bits, wire_enum};

wire_bits! {
    /// Which fields of an [`MdtBody`](super::MdtBody) or [`Obdo`](crate::ost::Obdo) mean something,
    /// and what a getattr asks for (`OBD_MD_*`).
    pub struct Valid: u64 {
        /// `OBD_MD_FLID`: object id.
        ID = 0x1,
        /// `OBD_MD_FLATIME`: access time.
        ATIME = 0x2,
        /// `OBD_MD_FLMTIME`: time of the last change of data.
        MTIME = 0x4,
        /// `OBD_MD_FLCTIME`: time of the last change of anything.
        CTIME = 0x8,
        /// `OBD_MD_FLSIZE`: size.
        SIZE = 0x10,
        /// `OBD_MD_FLBLOCKS`: blocks of 512 bytes in use.
        BLOCKS = 0x20,
        /// `OBD_MD_FLBLKSZ`: preferred IO size.
        BLKSIZE = 0x40,
        /// `OBD_MD_FLMODE`: permission bits.
        MODE = 0x80,
        /// `OBD_MD_FLTYPE`: type bits of the mode.
        TYPE = 0x100,
        /// `OBD_MD_FLUID`: owner.
        UID = 0x200,
        /// `OBD_MD_FLGID`: group.
        GID = 0x400,
        /// `OBD_MD_FLFLAGS`: the flags word.
        FLAGS = 0x800,
        /// `OBD_MD_DOM_SIZE`: size and blocks of the part on the MDT.
        DOM_SIZE = 0x1000,
        /// `OBD_MD_FLNLINK`: link count.
        NLINK = 0x2000,
        /// `OBD_MD_FLPARENT`: parent FID.
        PARENT = 0x4000,
        /// `OBD_MD_LAYOUT_VERSION`: layout version of an OST object.
        LAYOUT_VERSION = 0x8000,
        /// `OBD_MD_FLRDEV`: device number.
        RDEV = 0x1_0000,
        /// `OBD_MD_FLEASIZE`: a layout, or room for one.
        EASIZE = 0x2_0000,
        /// `OBD_MD_LINKNAME`: target of a symbolic link.
        LINKNAME = 0x4_0000,
        /// `OBD_MD_FLHANDLE`: a file or lock handle.
        HANDLE = 0x8_0000,
        /// `OBD_MD_FLCKSUM`: checksum of the bulk data.
        CKSUM = 0x10_0000,
        /// `OBD_MD_FLPRJQUOTA`: the project's over-quota flag counts.
        PRJQUOTA = 0x40_0000,
        /// `OBD_MD_FLGROUP`: the object's sequence.
        GROUP = 0x100_0000,
        /// `OBD_MD_FLFID`: the parent FID comes inline with a write.
        FID = 0x200_0000,
        /// `OBD_MD_FLGRANT`: space grant.
        GRANT = 0x800_0000,
        /// `OBD_MD_FLDIREA`: a directory's default layout.
        DIREA = 0x1000_0000,
        /// `OBD_MD_FLUSRQUOTA`: the owner's over-quota flag counts.
        USRQUOTA = 0x2000_0000,
        /// `OBD_MD_FLGRPQUOTA`: the group's over-quota flag counts.
        GRPQUOTA = 0x4000_0000,
        /// `OBD_MD_FLMODEASIZE`: the largest layout size changed.
        MODEASIZE = 0x8000_0000,
        /// `OBD_MD_MDS`: the inode lies on another MDT.
        MDS = 0x1_0000_0000,
        /// `OBD_MD_MEA`: a striped directory's layout.
        MEA = 0x4_0000_0000,
        /// `OBD_MD_TSTATE`: transient state of the file (HSM).
        TSTATE = 0x8_0000_0000,
        /// `OBD_MD_FLXATTR`: one extended attribute.
        XATTR = 0x10_0000_0000,
        /// `OBD_MD_FLXATTRLS`: names of the extended attributes.
        XATTRLS = 0x20_0000_0000,
        /// `OBD_MD_FLXATTRRM`: removal of an extended attribute.
        XATTRRM = 0x40_0000_0000,
        /// `OBD_MD_FLACL`: access control list.
        ACL = 0x80_0000_0000,
        /// `OBD_MD_FLAGSTATFS`: statfs summed up over all targets.
        AGSTATFS = 0x100_0000_0000,
        /// `OBD_MD_FLCROSSREF`: the name lies on another MDT than the inode.
        CROSSREF = 0x1000_0000_0000,
        /// `OBD_MD_FLGETATTRLOCK`: attributes under a lock the server takes.
        GETATTRLOCK = 0x2000_0000_0000,
        /// `OBD_MD_FLOBJCOUNT`: number of objects to destroy.
        OBJCOUNT = 0x4000_0000_0000,
        /// `OBD_MD_FLDATAVERSION`: data version.
        DATAVERSION = 0x10_0000_0000_0000,
        /// `OBD_MD_CLOSE_INTENT_EXECED`: the close did what else it was asked to.
        CLOSE_INTENT_EXECED = 0x20_0000_0000_0000,
        /// `OBD_MD_DEFAULT_MEA`: a directory's default striping of directories.
        DEFAULT_MEA = 0x40_0000_0000_0000,
        /// `OBD_MD_FLOSTLAYOUT`: the object's place in its file's layout.
        OSTLAYOUT = 0x80_0000_0000_0000,
        /// `OBD_MD_FLPROJID`: project.
        PROJID = 0x100_0000_0000_0000,
        /// `OBD_MD_SECCTX`: security context.
        SECCTX = 0x200_0000_0000_0000,
        /// `OBD_MD_FLLAZYSIZE`: a size that may be out of date.
        LAZYSIZE = 0x400_0000_0000_0000,
        /// `OBD_MD_FLLAZYBLOCKS`: a block count that may be out of date.
        LAZYBLOCKS = 0x800_0000_0000_0000,
        /// `OBD_MD_FLBTIME`: time of creation.
        BTIME = 0x1000_0000_0000_0000,
        /// `OBD_MD_ENCCTX`: encryption context.
        ENCCTX = 0x2000_0000_0000_0000,
        /// `OBD_MD_NAMEHASH`: a name's hash stands for the name.
        NAMEHASH = 0x4000_0000_0000_0000,
    }
}

wire_bits! {
    /// An inode's flags, as `lsattr` shows them (`LUSTRE_*_FL`, the numbers of ext4).
    pub struct FileFlags: u32 {
        /// `LUSTRE_SYNC_FL`: write synchronously.
        SYNC = 0x8,
        /// `LUSTRE_IMMUTABLE_FL`: no change at all.
        IMMUTABLE = 0x10,
        /// `LUSTRE_APPEND_FL`: writes only at the end.
        APPEND = 0x20,
        /// `LUSTRE_NODUMP_FL`: left out of dumps.
        NODUMP = 0x40,
        /// `LUSTRE_NOATIME_FL`: access times are not kept.
        NOATIME = 0x80,
        /// `LUSTRE_NOCOMPR_FL`: do not compress.
        NOCOMPR = 0x400,
        /// `LUSTRE_INDEX_FL`: directory indexed by hash.
        INDEX = 0x1000,
        /// `LUSTRE_ORPHAN_FL`: has no name any more.
        ORPHAN = 0x2000,
        /// `LUSTRE_DIRSYNC_FL`: synchronous directory changes.
        DIRSYNC = 0x1_0000,
        /// `LUSTRE_TOPDIR_FL`: top of a hierarchy.
        TOPDIR = 0x2_0000,
        /// `LUSTRE_SET_SYNC_FL`: attributes go to the OSTs synchronously.
        SET_SYNC = 0x4_0000,
        /// `LUSTRE_EXTENTS_FL`: mapped by extents.
        EXTENTS = 0x8_0000,
        /// `LUSTRE_ENCRYPT_FL`: encrypted.
        ENCRYPT = 0x80_0000,
        /// `LUSTRE_PROJINHERIT_FL`: children get the directory's project.
        PROJINHERIT = 0x2000_0000,
    }
}

wire_bits! {
    /// Which attributes a setattr sets (`MDS_ATTR_*`).
    pub struct AttrValid: u64 {
        /// `MDS_ATTR_MODE`: mode.
        MODE = 0x1,
        /// `MDS_ATTR_UID`: owner.
        UID = 0x2,
        /// `MDS_ATTR_GID`: group.
        GID = 0x4,
        /// `MDS_ATTR_SIZE`: size.
        SIZE = 0x8,
        /// `MDS_ATTR_ATIME`: access time.
        ATIME = 0x10,
        /// `MDS_ATTR_MTIME`: modification time.
        MTIME = 0x20,
        /// `MDS_ATTR_CTIME`: change time.
        CTIME = 0x40,
        /// `MDS_ATTR_ATIME_SET`: the access time is the caller's choice, not now.
        ATIME_SET = 0x80,
        /// `MDS_ATTR_MTIME_SET`: the modification time is the caller's choice, not now.
        MTIME_SET = 0x100,
        /// `MDS_ATTR_FORCE`: without asking permission.
        FORCE = 0x200,
        /// `MDS_ATTR_ATTR_FLAG`: the flags word.
        ATTR_FLAG = 0x400,
        /// `MDS_ATTR_KILL_SUID`: drop the set-user-id bit.
        KILL_SUID = 0x800,
        /// `MDS_ATTR_KILL_SGID`: drop the set-group-id bit.
        KILL_SGID = 0x1000,
        /// `MDS_ATTR_CTIME_SET`: the change time is the caller's.
        CTIME_SET = 0x2000,
        /// `MDS_ATTR_FROM_OPEN`: truncation by open.
        FROM_OPEN = 0x4000,
        /// `MDS_ATTR_BLOCKS`: block count.
        BLOCKS = 0x8000,
        /// `MDS_ATTR_PROJID`: project.
        PROJID = 0x1_0000,
        /// `MDS_ATTR_LSIZE`: lazy size.
        LSIZE = 0x2_0000,
        /// `MDS_ATTR_LBLOCKS`: lazy block count.
        LBLOCKS = 0x4_0000,
        /// `MDS_ATTR_OVERRIDE`: the owner may, whatever the mode says.
        OVERRIDE = 0x200_0000,
    }
}

wire_bits! {
    /// How to open (`MDS_FMODE_*` and `MDS_OPEN_*`).
    pub struct MdsOpenFlags: u64 {
        /// `MDS_FMODE_READ`: for reading.
        READ = 0o1,
        /// `MDS_FMODE_WRITE`: for writing.
        WRITE = 0o2,
        /// `MDS_FMODE_EXEC`: for executing.
        EXEC = 0o4,
        /// `MDS_OPEN_CREATED`: this open created the file.
        CREATED = 0o10,
        /// `MDS_FMODE_EXECUTE`: permission check for execve.
        EXECUTE = 0o20,
        /// `MDS_OPEN_CREAT`: create if absent.
        CREAT = 0o100,
        /// `MDS_OPEN_EXCL`: fail if present.
        EXCL = 0o200,
        /// `MDS_OPEN_NOCTTY`: as O_NOCTTY.
        NOCTTY = 0o400,
        /// `MDS_OPEN_TRUNC`: cut to nothing.
        TRUNC = 0o1000,
        /// `MDS_OPEN_APPEND`: write at the end.
        APPEND = 0o2000,
        /// `MDS_OPEN_NONBLOCK`: as O_NONBLOCK.
        NONBLOCK = 0o4000,
        /// `MDS_OPEN_SYNC`: as O_SYNC.
        SYNC = 0o1_0000,
        /// `MDS_OPEN_FASYNC`: as FASYNC.
        FASYNC = 0o2_0000,
        /// `MDS_OPEN_LARGEFILE`: as O_LARGEFILE.
        LARGEFILE = 0o10_0000,
        /// `MDS_OPEN_DIRECTORY`: fail unless a directory.
        DIRECTORY = 0o20_0000,
        /// `MDS_OPEN_NOFOLLOW`: do not follow a symbolic link.
        NOFOLLOW = 0o40_0000,
        /// `MDS_OPEN_BY_FID`: the object is known by its FID, the name does not matter.
        BY_FID = 0o4000_0000,
        /// `MDS_OPEN_DELAY_CREATE`: no OST objects yet.
        DELAY_CREATE = 0o1_0000_0000,
        /// `MDS_OPEN_OWNEROVERRIDE`: the owner may, whatever the mode says.
        OWNEROVERRIDE = 0o2_0000_0000,
        /// `MDS_OPEN_LOCK`: an open lock is wanted.
        LOCK = 0o40_0000_0000,
        /// `MDS_OPEN_HAS_EA`: the layout to create with comes along.
        HAS_EA = 0o100_0000_0000,
        /// `MDS_OPEN_HAS_OBJS`: set the layout, its objects exist.
        HAS_OBJS = 0o200_0000_0000,
        /// `MDS_OPEN_NORESTORE`: do not restore from the archive.
        NORESTORE = 0o1000_0000_0000,
        /// `MDS_OPEN_NEWSTRIPE`: a new stripe is wanted.
        NEWSTRIPE = 0o2000_0000_0000,
        /// `MDS_OPEN_VOLATILE`: a file without name, gone at close.
        VOLATILE = 0o4000_0000_0000,
        /// `MDS_OPEN_LEASE`: a lease is wanted.
        LEASE = 0o1_0000_0000_0000,
        /// `MDS_OPEN_RELEASE`: open for releasing to the archive.
        RELEASE = 0o2_0000_0000_0000,
        /// `MDS_OPEN_RESYNC`: open for resyncing mirrors; for mkdir MDS_MKDIR_LMV.
        RESYNC = 0o4_0000_0000_0000,
        /// `MDS_OPEN_PCC`: auto-attach to the persistent client cache.
        PCC = 0o10_0000_0000_0000,
        /// `MDS_OP_WITH_FID`: the operation names its object by FID.
        WITH_FID = 0o20_0000_0000_0000,
        /// `MDS_OPEN_DEFAULT_LMV`: fetch the default directory striping.
        DEFAULT_LMV = 0o40_0000_0000_0000,
    }
}

impl MdsOpenFlags {
    /// The rights to the file that an open with these flags needs (`mds_accmode`).
    #[must_use]
    pub fn rights(self) -> May {
        // A caller that executes a file need not be allowed to read it.
        let read = if self.contains(Self::EXEC) { May::EXEC } else { May::READ };
        let pairs = [
            (Self::READ, read),
            (Self::WRITE, May::WRITE),
            (Self::TRUNC, May::WRITE),
            (Self::EXEC, May::EXEC),
        ];
        let needed = pairs.iter().filter(|(flag, _)| self.contains(*flag));
        needed.fold(May::NOTHING, |may, (_, more)| may.and(*more))
    }
}

wire_bits! {
    /// Variants of an operation (`MDS_*` of `enum mds_op_bias`).
    pub struct Bias: u32 {
        /// `MDS_CROSS_REF`: the name was resolved on another MDT.
        CROSS_REF = 0x2,
        /// `MDS_PERM_BYPASS`: no permission check.
        PERM_BYPASS = 0x8,
        /// `MDS_QUOTA_IGNORE`: not limited by quota.
        QUOTA_IGNORE = 0x20,
        /// `MDS_KEEP_ORPHAN`: do not destroy the orphan.
        KEEP_ORPHAN = 0x80,
        /// `MDS_RECOV_OPEN`: an open made again after recovery.
        RECOV_OPEN = 0x100,
        /// `MDS_DATA_MODIFIED`: data changed while open.
        DATA_MODIFIED = 0x200,
        /// `MDS_CREATE_VOLATILE`: create without name.
        CREATE_VOLATILE = 0x400,
        /// `MDS_OWNEROVERRIDE`: the owner may.
        OWNEROVERRIDE = 0x800,
        /// `MDS_HSM_RELEASE`: this close releases to the archive.
        HSM_RELEASE = 0x1000,
        /// `MDS_CLOSE_MIGRATE`: this close ends a migration.
        CLOSE_MIGRATE = 0x2000,
        /// `MDS_CLOSE_LAYOUT_SWAP`: this close swaps layouts.
        CLOSE_LAYOUT_SWAP = 0x4000,
        /// `MDS_CLOSE_LAYOUT_MERGE`: this close adds a mirror.
        CLOSE_LAYOUT_MERGE = 0x8000,
        /// `MDS_CLOSE_RESYNC_DONE`: this close ends a resync.
        CLOSE_RESYNC_DONE = 0x1_0000,
        /// `MDS_CLOSE_LAYOUT_SPLIT`: this close splits a mirror off.
        CLOSE_LAYOUT_SPLIT = 0x2_0000,
        /// `MDS_TRUNC_KEEP_LEASE`: truncation under the caller's own lease.
        TRUNC_KEEP_LEASE = 0x4_0000,
        /// `MDS_PCC_ATTACH`: attach to the persistent client cache.
        PCC_ATTACH = 0x8_0000,
        /// `MDS_CLOSE_UPDATE_TIMES`: this close brings times.
        CLOSE_UPDATE_TIMES = 0x10_0000,
        /// `MDS_SETSTRIPE_CREATE`: create only, do not restripe.
        SETSTRIPE_CREATE = 0x20_0000,
        /// `MDS_FID_OP`: the object is named by FID.
        FID_OP = 0x40_0000,
        /// `MDS_MIGRATE_NSONLY`: migrate names only.
        MIGRATE_NSONLY = 0x80_0000,
        /// `MDS_CREATE_DEFAULT_LMV`: create with the client's default striping.
        CREATE_DEFAULT_LMV = 0x100_0000,
        /// `MDS_CLOSE_LAYOUT_SWAP_HSM`: swap that carries both data versions.
        CLOSE_LAYOUT_SWAP_HSM = 0x200_0000,
        /// `MDS_RENAME_AGAIN`: renamed again with the target's ACL.
        RENAME_AGAIN = 0x400_0000,
        /// `MDS_NAMEHASH`: a name's hash stands for the name.
        NAMEHASH = 0x800_0000,
    }
}

wire_bits! {
    /// What of an intent was done (`DISP_*`).
    pub struct Disposition: u64 {
        /// `DISP_IT_EXECD`: the intent was looked at.
        IT_EXECD = 0x1,
        /// `DISP_LOOKUP_EXECD`: the name was looked up.
        LOOKUP_EXECD = 0x2,
        /// `DISP_LOOKUP_NEG`: and was absent.
        LOOKUP_NEG = 0x4,
        /// `DISP_LOOKUP_POS`: and was there.
        LOOKUP_POS = 0x8,
        /// `DISP_OPEN_CREATE`: the file was created.
        OPEN_CREATE = 0x10,
        /// `DISP_OPEN_OPEN`: the file was opened.
        OPEN_OPEN = 0x20,
        /// `DISP_ENQ_OPEN_REF`: the reply holds an open reference.
        ENQ_OPEN_REF = 0x80_0000,
        /// `DISP_ENQ_CREATE_REF`: the reply holds a create reference.
        ENQ_CREATE_REF = 0x100_0000,
        /// `DISP_OPEN_LOCK`: an open lock was taken.
        OPEN_LOCK = 0x200_0000,
        /// `DISP_OPEN_LEASE`: a lease was taken.
        OPEN_LEASE = 0x400_0000,
        /// `DISP_OPEN_STRIPE`: the layout was made or extended.
        OPEN_STRIPE = 0x800_0000,
        /// `DISP_OPEN_DENY`: other opens deny this one.
        OPEN_DENY = 0x1000_0000,
    }
}

wire_enum! {
    /// What a REINT does (`REINT_*`, the first word of its record).
    pub enum ReintOp: u32 {
        /// `REINT_SETATTR`: set attributes.
        SETATTR = 1,
        /// `REINT_CREATE`: create anything but a regular file by open.
        CREATE = 2,
        /// `REINT_LINK`: add a name.
        LINK = 3,
        /// `REINT_UNLINK`: remove a name, or an empty directory.
        UNLINK = 4,
        /// `REINT_RENAME`: rename.
        RENAME = 5,
        /// `REINT_OPEN`: open and possibly create; only inside an intent.
        OPEN = 6,
        /// `REINT_SETXATTR`: set or remove an extended attribute.
        SETXATTR = 7,
        /// `REINT_RMENTRY`: remove a bare directory entry.
        RMENTRY = 8,
        /// `REINT_MIGRATE`: move an inode to another MDT.
        MIGRATE = 9,
        /// `REINT_RESYNC`: begin a resync of mirrors.
        RESYNC = 10,
    }
}

wire_bits! {
    /// The state of a target (`OS_STATFS_*`).
    pub struct StatfsState: u32 {
        /// `OS_STATFS_DEGRADED`: RAID degraded.
        DEGRADED = 0x1,
        /// `OS_STATFS_READONLY`: read-only.
        READONLY = 0x2,
        /// `OS_STATFS_NOCREATE`: no new objects here.
        NOCREATE = 0x4,
        /// `OS_STATFS_ENOSPC`: out of space.
        ENOSPC = 0x20,
        /// `OS_STATFS_ENOINO`: out of inodes.
        ENOINO = 0x40,
        /// `OS_STATFS_SUM`: summed up over all targets.
        SUM = 0x100,
        /// `OS_STATFS_NONROT`: flash.
        NONROT = 0x200,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_executes_a_file_need_not_read_it() {
        let cases = [
            (MdsOpenFlags::NONE, May::NOTHING),
            (MdsOpenFlags::READ, May::READ),
            (MdsOpenFlags::READ | MdsOpenFlags::EXEC, May::EXEC),
            (MdsOpenFlags::READ | MdsOpenFlags::WRITE, May::READ.and(May::WRITE)),
            (MdsOpenFlags::READ | MdsOpenFlags::TRUNC, May::READ.and(May::WRITE)),
            (MdsOpenFlags::CREAT, May::NOTHING),
        ];
        for (flags, rights) in cases {
            assert_eq!(flags.rights(), rights, "{flags:?}");
        }
    }
}
