//! Sizes and offsets against the numbers that Lustre's `wiretest.c` checks.

use super::*;
use crate::codec::Wire;

fn offset(offsets: &[(&str, usize)], field: &str) -> usize {
    offsets.iter().find(|(name, _)| *name == field).map(|(_, at)| *at).expect("a field")
}

#[test]
fn mdt_body_layout() {
    assert_eq!(MdtBody::SIZE, 216);
    for (field, at) in [
        ("fid1", 0),
        ("fid2", 16),
        ("open_handle", 32),
        ("valid", 40),
        ("size", 48),
        ("mtime", 56),
        ("atime", 64),
        ("ctime", 72),
        ("blocks", 80),
        ("version", 88),
        ("t_state", 96),
        ("fsuid", 104),
        ("fsgid", 108),
        ("capability", 112),
        ("mode", 116),
        ("uid", 120),
        ("gid", 124),
        ("flags", 128),
        ("rdev", 132),
        ("nlink", 136),
        ("layout_gen", 140),
        ("suppgid", 144),
        ("eadatasize", 148),
        ("aclsize", 152),
        ("max_mdsize", 156),
        ("unused3", 160),
        ("uid_h", 164),
        ("gid_h", 168),
        ("projid", 172),
        ("dom_size", 176),
        ("dom_blocks", 184),
        ("btime", 192),
        ("xattr_absent", 200),
        ("padding_10", 208),
    ] {
        assert_eq!(offset(MdtBody::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_ioepoch_layout() {
    assert_eq!(MdtIoepoch::SIZE, 24);
    for (field, at) in [("open_handle", 0), ("unused1", 8), ("unused2", 16), ("padding", 20)] {
        assert_eq!(offset(MdtIoepoch::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_setattr_layout() {
    assert_eq!(RecSetattr::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("padding_1_h", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid", 24),
        ("padding_3_h", 28),
        ("padding_1", 32),
        ("padding_2", 36),
        ("fid", 40),
        ("valid", 56),
        ("uid", 64),
        ("gid", 68),
        ("size", 72),
        ("blocks", 80),
        ("mtime", 88),
        ("atime", 96),
        ("ctime", 104),
        ("attr_flags", 112),
        ("mode", 116),
        ("bias", 120),
        ("projid", 124),
        ("padding_4", 128),
        ("padding_5", 132),
    ] {
        assert_eq!(offset(RecSetattr::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_create_layout() {
    assert_eq!(RecCreate::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("layout_ver", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid1", 24),
        ("padding_3_h", 28),
        ("suppgid2", 32),
        ("padding_4_h", 36),
        ("fid1", 40),
        ("fid2", 56),
        ("open_handle_old", 72),
        ("time", 80),
        ("rdev", 88),
        ("ioepoch", 96),
        ("padding_1", 104),
        ("mode", 112),
        ("bias", 116),
        ("flags_l", 120),
        ("flags_h", 124),
        ("umask", 128),
        ("padding_4", 132),
    ] {
        assert_eq!(offset(RecCreate::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_link_layout() {
    assert_eq!(RecLink::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("padding_1_h", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid1", 24),
        ("padding_3_h", 28),
        ("suppgid2", 32),
        ("padding_4_h", 36),
        ("fid1", 40),
        ("fid2", 56),
        ("time", 72),
        ("padding_1", 80),
        ("padding_2", 88),
        ("padding_3", 96),
        ("padding_4", 104),
        ("bias", 112),
        ("padding_5", 116),
        ("padding_6", 120),
        ("padding_7", 124),
        ("padding_8", 128),
        ("padding_9", 132),
    ] {
        assert_eq!(offset(RecLink::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_unlink_layout() {
    assert_eq!(RecUnlink::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("padding_1_h", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid1", 24),
        ("padding_3_h", 28),
        ("suppgid2", 32),
        ("padding_4_h", 36),
        ("fid1", 40),
        ("fid2", 56),
        ("time", 72),
        ("padding_2", 80),
        ("padding_3", 88),
        ("padding_4", 96),
        ("padding_5", 104),
        ("bias", 112),
        ("mode", 116),
        ("padding_6", 120),
        ("padding_7", 124),
        ("padding_8", 128),
        ("padding_9", 132),
    ] {
        assert_eq!(offset(RecUnlink::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_rename_layout() {
    assert_eq!(RecRename::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("padding_1_h", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid1", 24),
        ("padding_3_h", 28),
        ("suppgid2", 32),
        ("padding_4_h", 36),
        ("fid1", 40),
        ("fid2", 56),
        ("time", 72),
        ("padding_1", 80),
        ("padding_2", 88),
        ("padding_3", 96),
        ("padding_4", 104),
        ("bias", 112),
        ("mode", 116),
        ("padding_5", 120),
        ("padding_6", 124),
        ("padding_7", 128),
        ("padding_8", 132),
    ] {
        assert_eq!(offset(RecRename::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_setxattr_layout() {
    assert_eq!(RecSetxattr::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("padding_1_h", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid1", 24),
        ("padding_3_h", 28),
        ("suppgid2", 32),
        ("padding_4_h", 36),
        ("fid", 40),
        ("padding_1", 56),
        ("padding_2", 64),
        ("padding_3", 68),
        ("valid", 72),
        ("time", 80),
        ("padding_5", 88),
        ("padding_6", 96),
        ("padding_7", 104),
        ("size", 112),
        ("flags", 116),
        ("padding_8", 120),
        ("padding_9", 124),
        ("padding_10", 128),
        ("padding_11", 132),
    ] {
        assert_eq!(offset(RecSetxattr::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn mdt_rec_resync_layout() {
    assert_eq!(RecResync::SIZE, 136);
    for (field, at) in [
        ("opcode", 0),
        ("cap", 4),
        ("fsuid", 8),
        ("padding_1_h", 12),
        ("fsgid", 16),
        ("padding_2_h", 20),
        ("suppgid1", 24),
        ("padding_3_h", 28),
        ("suppgid2", 32),
        ("padding_4_h", 36),
        ("fid", 40),
        ("padding0", 56),
        ("lease_handle", 72),
        ("padding1", 80),
        ("padding2", 88),
        ("padding3", 96),
        ("padding4", 104),
        ("bias", 112),
        ("padding5", 116),
        ("padding6", 120),
        ("padding7", 124),
        ("mirror_id_new", 128),
        ("mirror_id_old", 132),
        ("padding9", 134),
    ] {
        assert_eq!(offset(RecResync::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn layout_intent_layout() {
    assert_eq!(LayoutIntent::SIZE, 24);
    for (field, at) in [("op", 0), ("flags", 4), ("start", 8)] {
        assert_eq!(offset(LayoutIntent::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn obd_statfs_layout() {
    assert_eq!(ObdStatfs::SIZE, 144);
    for (field, at) in [
        ("kind", 0),
        ("blocks", 8),
        ("bfree", 16),
        ("bavail", 24),
        ("files", 32),
        ("ffree", 40),
        ("fsid", 48),
        ("bsize", 88),
        ("namelen", 92),
        ("maxbytes", 96),
        ("state", 104),
        ("fprecreated", 108),
        ("granted", 112),
        ("spare", 116),
    ] {
        assert_eq!(offset(ObdStatfs::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn lustre_mdt_attrs_layout() {
    assert_eq!(LustreMdtAttrs::SIZE, 24);
    for (field, at) in [("compat", 0), ("incompat", 4), ("self_fid", 8)] {
        assert_eq!(offset(LustreMdtAttrs::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn hsm_attrs_layout() {
    assert_eq!(HsmAttrs::SIZE, 24);
    for (field, at) in [("compat", 0), ("flags", 4), ("arch_id", 8), ("arch_ver", 16)] {
        assert_eq!(offset(HsmAttrs::OFFSETS, field), at, "{field}");
    }
}
