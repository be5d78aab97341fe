//! The FIDs that a directory had before it moved: a migration, and the split of a directory in one piece, give its name to a new
//! master. Clients that know the directory by a FID of before find in the new one's attribute that it is the same.
//!
//! Lustre has no such attribute: its servers answer `ENODATA`.

use bytes::{Bytes, BytesMut};
use sheen_types::Fid;

/// The extended attribute: FIDs, newest first, 16 bytes each as on the wire (`lu_fid`, little endian). Servers alone set it; it is
/// answered to who asks for it by its name, and listed to no client.
pub const FORMER: &str = "trusted.sheen.former";

/// How many FIDs are kept, at most: a client that has not looked for as many moves looks the path up again.
const FIDS_MAX: usize = 16;
/// Bytes of one.
const FID_BYTES: usize = 16;

/// The FIDs of [`FORMER`], newest first. What follows the last whole FID, or the 16th, is ignored.
#[must_use]
pub fn read_former(value: &[u8]) -> Vec<Fid> {
    let (fids, _) = value.as_chunks::<FID_BYTES>();
    fids.iter().take(FIDS_MAX).map(decoded).collect()
}

/// The attribute of what takes the place of directory `own`, which has `before` as its attribute: empty if it has none.
#[must_use]
pub fn former_with(own: Fid, before: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(FIDS_MAX * FID_BYTES);
    let older = read_former(before).into_iter().filter(|fid| *fid != own);
    for fid in std::iter::once(own).chain(older).take(FIDS_MAX) {
        value.extend_from_slice(&fid.seq.to_le_bytes());
        value.extend_from_slice(&fid.oid.to_le_bytes());
        value.extend_from_slice(&fid.ver.to_le_bytes());
    }
    value.freeze()
}

fn decoded(fid: &[u8; FID_BYTES]) -> Fid {
    let bits = u128::from_le_bytes(*fid);
    Fid { seq: bits as u64, oid: (bits >> 64) as u32, ver: (bits >> 96) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(number: u32) -> Fid {
        Fid::new(0x2_4000_0400, number)
    }

    #[test]
    fn fids_of_before_come_back_newest_first() {
        assert_eq!(read_former(&[]), []);
        let once = former_with(fid(1), &[]);
        assert_eq!(&once[..], b"\0\x04\0\x40\x02\0\0\0\x01\0\0\0\0\0\0\0");
        let twice = former_with(Fid { ver: 7, ..fid(2) }, &once);
        assert_eq!(read_former(&twice), [Fid { ver: 7, ..fid(2) }, fid(1)]);
    }

    #[test]
    fn the_oldest_are_forgotten_and_none_is_there_twice() {
        let all = (0..40).fold(Bytes::new(), |before, number| former_with(fid(number), &before));
        assert_eq!(all.len(), 256);
        let newest: Vec<Fid> = (24..40).rev().map(fid).collect();
        assert_eq!(read_former(&all), newest);
        assert_eq!(read_former(&former_with(fid(30), &all)).len(), 16);
        assert_eq!(read_former(&former_with(fid(30), &all))[0], fid(30));
    }

    #[test]
    fn what_is_no_whole_fid_is_ignored() {
        let one = former_with(fid(1), &[]);
        for length in 0..16 {
            assert_eq!(read_former(&one[..length]), []);
        }
        assert_eq!(read_former(&[&one[..], &one[..5]].concat()), [fid(1)]);
        assert_eq!(read_former(&one.repeat(40)).len(), 16);
    }
}
