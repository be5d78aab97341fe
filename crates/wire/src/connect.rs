//! What both sides of a connection say they can do.

use crate::text::Chars;
use crate::{wire_bits, wire_struct};

wire_bits! {
    /// `OBD_CONNECT_*`: features of the first word.
    pub struct ConnectFlags: u64 {
        /// The client will not write.
        RDONLY = 0x1,
        /// `index` is set.
        INDEX = 0x2,
        /// The client is an MDT connecting to an OST.
        MDS = 0x4,
        /// Space grants are spoken; `grant` is set.
        GRANT = 0x8,
        /// The server may lock on behalf of an RPC.
        SRVLOCK = 0x10,
        /// `version` is set.
        VERSION = 0x20,
        /// Registration carries NIDs as text.
        MGS_NIDLIST = 0x40,
        /// Access control lists.
        ACL = 0x80,
        /// Extended attributes.
        XATTR = 0x100,
        /// ACLs with more than 32 entries.
        LARGE_ACL = 0x200,
        /// Fallocate without valid bits.
        OLD_FALLOC = 0x400,
        /// `transno` is set in replay.
        TRANSNO = 0x800,
        /// `ibits_known` is set.
        IBITS = 0x1000,
        /// Write barriers.
        BARRIER = 0x2000,
        /// Getattr by FID.
        ATTRFID = 0x4000,
        /// Open handles of special files are not needed.
        NODEVOH = 0x8000,
        /// Obsolete.
        RMT_CLIENT = 0x10000,
        /// Obsolete.
        RMT_CLIENT_FORCE = 0x20000,
        /// `brw_size` is set.
        BRW_SIZE = 0x40000,
        /// Obsolete.
        QUOTA64 = 0x80000,
        /// Obsolete.
        MDS_CAPA = 0x100000,
        /// Obsolete.
        OSS_CAPA = 0x200000,
        /// Several cancels in one request.
        CANCELSET = 0x400000,
        /// Obsolete.
        SOM = 0x800000,
        /// Adaptive timeouts.
        AT = 0x1000000,
        /// The server steers how many unused locks clients keep.
        LRU_RESIZE = 0x2000000,
        /// The client is another MDT.
        MDS_MDS = 0x4000000,
        /// Obsolete.
        REAL = 0x8000000,
        /// Obsolete.
        CHANGE_QS = 0x10000000,
        /// `cksum_types` is set.
        CKSUM = 0x20000000,
        /// FIDs are spoken.
        FID = 0x40000000,
        /// Version-based recovery.
        VBR = 0x80000000,
        /// Layouts with a pool name.
        LOV_V3 = 0x100000000,
        /// Clients return grants.
        GRANT_SHRINK = 0x200000000,
        /// Object ids are not used again after orphan cleanup.
        SKIP_ORPHAN = 0x400000000,
        /// `max_easize` is set.
        MAX_EASIZE = 0x800000000,
        /// A peer of 2.0 or later.
        FULL20 = 0x1000000000,
        /// Locks on layouts.
        LAYOUTLOCK = 0x2000000000,
        /// Directory hashes of 64 bits.
        HASH64 = 0x4000000000,
        /// `maxbytes` is set.
        MAXBYTES = 0x8000000000,
        /// Imperative recovery.
        IMP_RECOV = 0x10000000000,
        /// Bodies carry job ids.
        JOBSTATS = 0x20000000000,
        /// Creates carry the umask.
        UMASK = 0x40000000000,
        /// The client tries again after EINPROGRESS.
        EINPROGRESS = 0x80000000000,
        /// The `grant_*` fields are set.
        GRANT_PARAM = 0x100000000000,
        /// One lock per high-priority check.
        HPREQ_CHECK1 = 0x200000000000,
        /// Lock value blocks have types.
        LVB_TYPE = 0x400000000000,
        /// Lock value blocks have nanoseconds.
        NANOSEC_TIME = 0x800000000000,
        /// Connections without recovery, between servers.
        LIGHTWEIGHT = 0x1000000000000,
        /// Small reads and writes inside the RPC.
        SHORTIO = 0x2000000000000,
        /// Clients need not ping.
        PINGLESS = 0x4000000000000,
        /// Deadlocks of flocks are found.
        FLOCK_DEAD = 0x8000000000000,
        /// Opens report whether they made the layout.
        DISP_STRIPE = 0x10000000000000,
        /// Opens by FID carry no name.
        OPEN_BY_FID = 0x20000000000000,
        /// Online LFSCK.
        LFSCK = 0x40000000000000,
        /// The last unlink closes the file.
        UNLINK_CLOSE = 0x100000000000000,
        /// `maxmodrpcs` is set: several modifying RPCs at once.
        MULTIMODRPCS = 0x200000000000000,
        /// Striped directories.
        DIR_STRIPE = 0x400000000000000,
        /// Mounting a subdirectory.
        SUBTREE = 0x800000000000000,
        /// Bodies carry the bulk's match bits.
        BULK_MBITS = 0x2000000000000000,
        /// Compact attributes in updates.
        OBDOPACK = 0x4000000000000000,
        /// `flags2` is set.
        FLAGS2 = 0x8000000000000000,
    }
}

wire_bits! {
    /// `OBD_CONNECT2_*`: features of the second word; valid with [`ConnectFlags::FLAGS2`].
    pub struct ConnectFlags2: u64 {
        /// Security contexts at create.
        FILE_SECCTX = 0x1,
        /// Locks asked for ahead.
        LOCKAHEAD = 0x2,
        /// Striped directories migrate.
        DIR_MIGRATE = 0x4,
        /// The MDT sums up statfs of all targets.
        SUM_STATFS = 0x8,
        /// Several stripes on one OST.
        OVERSTRIPING = 0x10,
        /// Mirrored files.
        FLR = 0x20,
        /// Intents of a metadata write-back cache.
        WBC_INTENTS = 0x40,
        /// Inode-bit locks convert.
        LOCK_CONVERT = 0x80,
        /// Archive ids come as an array.
        ARCHIVE_ID_ARRAY = 0x100,
        /// Xids only grow.
        INC_XID = 0x200,
        /// Requests carry the SELinux policy.
        SELINUX_POLICY = 0x400,
        /// Lazy size on MDT.
        LSOM = 0x800,
        /// Persistent client cache.
        PCC = 0x1000,
        /// CRUSH hash of directories.
        CRUSH = 0x2000,
        /// Data on MDT is discarded later.
        ASYNC_DISCARD = 0x4000,
        /// Encryption by the client.
        ENCRYPT = 0x8000,
        /// FID maps at migration.
        FIDMAP = 0x10000,
        /// Getattr carries the parent's FID.
        GETATTR_PFID = 0x20000,
        /// Finding data and holes.
        LSEEK = 0x40000,
        /// Glimpses of Data-on-MDT come as lock value blocks.
        DOM_LVB = 0x80000,
        /// Replies are matched by match bits, not xid.
        REP_MBITS = 0x100000,
        /// Lock modes convert.
        MODE_CONVERT = 0x200000,
        /// Several operations in one request.
        BATCH_RPC = 0x400000,
        /// Read-only persistent client cache.
        PCCRO = 0x800000,
        /// Recovery log entries say their NID type.
        MNE_TYPE = 0x1000000,
        /// Contention is detected.
        LOCK_CONTENTION = 0x2000000,
        /// A lock on first open.
        ATOMIC_OPEN_LOCK = 0x4000000,
        /// Encrypted names.
        ENCRYPT_NAME = 0x8000000,
        /// Default directory layouts are inherited implicitly.
        DMV_IMP_INHERIT = 0x20000000,
        /// FID to path of encrypted files.
        ENCRYPT_FID2PATH = 0x40000000,
        /// Object creation is replayed.
        REPLAY_CREATE = 0x80000000,
        /// NIDs of 16-byte addresses.
        LARGE_NID = 0x100000000,
        /// Compressed files.
        COMPRESS = 0x200000000,
        /// Direct IO at any offset.
        UNALIGNED_DIO = 0x400000000,
        /// Policy of connections at the server.
        CONN_POLICY = 0x800000000,
        /// Sparse reads.
        SPARSE = 0x1000000000,
        /// The mirror id of resync lies where it should.
        MIRROR_ID_FIX = 0x2000000000,
        /// Layout updates about compression.
        UPDATE_LAYOUT = 0x4000000000,
        /// Opens of directories bring the first page.
        READDIR_OPEN = 0x8000000000,
        /// Mirrors with parity.
        FLR_EC = 0x10000000000,
        /// Clients write mirrors at once.
        FLR_IMMED_MIRROR = 0x20000000000,
        /// No lock to the end for appends.
        NO_APPEND = 0x40000000000,
        /// Writing files with parity.
        FLR_EC_WR = 0x80000000000,
        /// Performance figures in statfs.
        PERFSTATS = 0x100000000000,
        /// Sheen's own, in no release of Lustre: a change of attributes leaves the locks on the inode that the client
        /// which asks for it has itself. See decision 0019.
        OWN_ATTRIBUTES = 0x0800000000000000,
        /// Sheen's own, in no release of Lustre: MDTs make changes together, whose records have the format that
        /// `update_format` says. See decision 0018.
        MDT_CHANGES = 0x1000000000000000,
        /// Sheen's own, in no release of Lustre: the connect data say whose MDT's objects and names are meant. See
        /// decision 0016.
        MDT_IDENTITY = 0x2000000000000000,
        /// Sheen's own, in no release of Lustre: a change of names leaves the locks on the directory
        /// that the client which asks for it has itself. See decision 0006.
        OWN_NAMES = 0x4000000000000000,
    }
}

wire_bits! {
    /// `OBD_CKSUM_*`: checksums of bulk data.
    pub struct ChecksumTypes: u32 {
        /// CRC-32.
        CRC32 = 0x1,
        /// Adler-32.
        ADLER = 0x2,
        /// CRC-32C.
        CRC32C = 0x4,
        /// Reserved.
        RESERVED = 0x8,
        /// T10 protection information: IP checksum of 512-byte sectors.
        T10IP512 = 0x10,
        /// T10 protection information: IP checksum of 4-KiB sectors.
        T10IP4K = 0x20,
        /// T10 protection information: CRC of 512-byte sectors.
        T10CRC512 = 0x40,
        /// T10 protection information: CRC of 4-KiB sectors.
        T10CRC4K = 0x80,
    }
}

wire_struct! {
    /// `struct obd_connect_data`: offered in a connect request, agreed to in its reply.
    ///
    /// Fields mean something only if their flag is set.
    pub struct ObdConnectData {
        /// Features.
        flags: ConnectFlags,
        /// Release: major, minor, patch, fix; a byte each, major highest.
        version: u32,
        /// Bytes of grant wished or given.
        grant: u32,
        /// Index of the target.
        index: u32,
        /// Most bytes of one bulk.
        brw_size: u32,
        /// Inode bits that locks may carry.
        ibits_known: u64,
        /// Logarithm of the back end's block size.
        grant_blkbits: u8,
        /// Logarithm of the space one inode takes.
        grant_inobits: u8,
        /// Kilobytes that one extent costs besides its blocks.
        grant_tax_kb: u16,
        /// Most blocks of one extent.
        grant_max_blks: u32,
        /// First transno that the client will replay.
        transno: sheen_types::Transno,
        /// Index of the MDT, on connections of an MDT.
        group: u32,
        /// Checksums of bulk data.
        cksum_types: ChecksumTypes,
        /// Most bytes of a layout.
        max_easize: u32,
        /// How often the target has been started.
        instance: u32,
        /// Largest object.
        maxbytes: u64,
        /// Modifying RPCs at once.
        maxmodrpcs: u16,
        /// Policy of the connection.
        conn_policy: u8,
        /// Unused.
        padding0: u8,
        /// Unused.
        padding1: u32,
        /// More features.
        flags2: ConnectFlags2,
        /// Compression algorithms.
        compr_type: u64,
        /// Sheen's own: the identity of an MDT's store, as text; unused in Lustre.
        identity: Chars<40>,
        /// Sheen's own: the format of records of changes over several MDTs, with `MDT_CHANGES`; unused in Lustre.
        update_format: u32,
        /// Unused.
        padding: Chars<52>,
    }
}

impl ObdConnectData {
    /// Which MDT is meant, as far as that is said: the text of its identity.
    #[must_use]
    pub fn mdt_identity(&self) -> Option<&[u8]> {
        let says = self.flags.contains(ConnectFlags::FLAGS2)
            && self.flags2.contains(ConnectFlags2::MDT_IDENTITY);
        Some(self.identity.as_bytes()).filter(|text| says && !text.is_empty())
    }
}

/// Packs a release into [`ObdConnectData::version`].
#[must_use]
pub const fn version_code(major: u8, minor: u8, patch: u8, fix: u8) -> u32 {
    u32::from_be_bytes([major, minor, patch, fix])
}
