//! Raising the kernel's size of a file, whatever it does with replies.
//!
//! The kernel has no notification for it. But a `FUSE_NOTIFY_STORE` raises the size first, to the end of what
//! is to be stored (`fuse_notify_store`, in every Linux that has it), and then takes a page and copies the
//! bytes into it. So this announces the file's last byte and lets the copy fail: the address of that byte is
//! memory that must not be read. The size is raised, no byte of a page is touched, and the system call
//! answers `EFAULT`. A page that is made for it is empty, and filled by the next read like any that is
//! missing.
//!
//! Where the kernel has no less for the size already this changes nothing, and drops no attributes.
#![allow(unsafe_code, reason = "unreadable memory has no safe name")]

use std::fs::File;
use std::io::{self, IoSlice};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Memory that can be named and not be read.
pub(crate) struct Unreadable(usize);

/// What is mapped.
const BYTES: usize = 4096;

impl Unreadable {
    /// A page, for as long as the process lives: there is one for each mount.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses; it replaces none.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), BYTES, ProtFlags::empty(), MapFlags::PRIVATE)
        };
        Ok(Self(page?.expose_provenance()))
    }

    /// Its first byte, for a system call to fail at.
    fn byte(&self) -> IoSlice<'_> {
        // SAFETY: the mapping is never taken away, and Rust's own code never looks behind the pointer of a
        // slice that only a system call is given.
        IoSlice::new(unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.0), 1)
        })
    }
}

/// The file has no less than `size` bytes, for the kernel behind `device`, when this returns `true`. Waits
/// for a call of the kernel's that has the last page.
pub(crate) fn raise(device: &File, nothing: &Unreadable, node: u64, size: u64) -> bool {
    let Some(last) = size.checked_sub(1) else { return true };
    let head = head(node, last);
    let written = rustix::io::writev(device, &[IoSlice::new(&head), nothing.byte()]);
    written == Err(rustix::io::Errno::FAULT)
}

/// The header before one byte at `offset` of a `FUSE_NOTIFY_STORE`.
fn head(node: u64, offset: u64) -> [u8; 40] {
    const NOTIFY_STORE: i32 = 4;
    const BYTE: u32 = 1;
    let mut head = [0; 40];
    head[..4].copy_from_slice(&(40 + BYTE).to_ne_bytes());
    head[4..8].copy_from_slice(&NOTIFY_STORE.to_ne_bytes());
    head[16..24].copy_from_slice(&node.to_ne_bytes());
    head[24..32].copy_from_slice(&offset.to_ne_bytes());
    head[32..36].copy_from_slice(&BYTE.to_ne_bytes());
    head
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn the_last_byte_is_announced_as_the_kernel_reads_it() {
        let head = head(7, 9999);
        assert_eq!((head[..4].to_vec(), head[4]), (41u32.to_ne_bytes().to_vec(), 4));
        assert_eq!((head[16], head[32..36].to_vec()), (7, 1u32.to_ne_bytes().to_vec()));
        assert_eq!(head[24..32], 9999u64.to_ne_bytes());
    }

    #[test]
    fn what_is_announced_is_never_read() {
        let nothing = Unreadable::new().expect("mapped");
        let mut file = tempfile();
        let refused = file.write_vectored(&[nothing.byte()]).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(rustix::io::Errno::FAULT.raw_os_error())));
        assert_eq!(file.stream_position().expect("a place"), 0);
        assert!(raise(&file, &nothing, 7, 0), "every file has that");
        assert!(!raise(&file, &nothing, 7, 1), "a plain file takes the first part");
    }

    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("sheen-raise-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file");
        std::fs::remove_file(path).expect("removed");
        file
    }
}
