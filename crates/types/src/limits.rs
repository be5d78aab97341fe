//! Every limit with its reason. What a peer sends can never make us hold more than these allow.

/// Bytes of one directory entry's name; POSIX `NAME_MAX`, and Lustre's.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a path or symbolic link with its NUL; POSIX `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;
/// Bytes of one extended attribute's value; Linux `XATTR_SIZE_MAX`.
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;
/// Bytes of one extended attribute's name; Linux `XATTR_NAME_MAX`.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Bytes of all extended attributes of one inode, names and values: they are one record, which each change of one of
/// them writes. Sixteen of the largest, nearly.
pub const XATTRS_BYTES_MAX: usize = 1 << 20;
/// Bytes of the names of all extended attributes of one inode, each with its NUL; Linux `XATTR_LIST_MAX`, beyond which
/// no program can list them.
pub const XATTR_LIST_BYTES_MAX: usize = 65536;
/// Bytes of one bulk transfer that we offer and accept: 4 MiB, Lustre's default `brw_size`.
pub const BULK_BYTES_MAX: usize = 4 << 20;
/// Bytes of one LNet message's payload (`LNET_MTU` is 1 MiB; a bulk is split in such parts).
pub const LNET_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of one request or reply without bulk. Lustre's largest request buffer holds 64 KiB of
/// extended attribute and the message around it.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Buffers in one ptlrpc message; Lustre's formats have at most 16 or so.
pub const MESSAGE_BUFFERS_MAX: usize = 32;
/// Flocks that an MDT grants one client unless it is set otherwise (`locks_per_client`), by which its mounts share them
/// among their users.
pub const FLOCKS_PER_CLIENT: usize = 64 << 10;
/// Stripes of one file (`LOV_MAX_STRIPE_COUNT`).
pub const STRIPE_COUNT_MAX: usize = 2000;
/// Stripes of one directory (`LMV_MAX_STRIPE_COUNT`).
pub const DIRECTORY_STRIPES_MAX: u32 = 2000;
/// Stripes that one directory may be wished to have on each MDT (`LMV_OVERSTRIPE_COUNT_MAX`).
pub const DIRECTORY_STRIPES_PER_MDT_MAX: u32 = 5;
/// Stripe sizes are multiples of this (`LOV_MIN_STRIPE_SIZE`).
pub const STRIPE_SIZE_MIN: u64 = 65536;
/// Hard links of one file, as ldiskfs allows and Lustre answers EMLINK beyond.
pub const LINK_COUNT_MAX: u32 = 65000;
