//! `LL_IOC_LADVISE`: a header and pieces of advice, by value or where the call's argument points to.
//!
//! FUSE hands over as many bytes as the call's number says. Lustre's number says that the call returns 32 bytes; the
//! kernel module reads there what the header counts. To have programs for Lustre work unchanged, this reads the caller's
//! memory as well, while the call waits: where the mount's process may, as that of root may. Our tools call by a number
//! that says how much is handed over ([`advise`]), which needs no such right.
//!
//! Another thread of the caller may hold its address space for as long as a call with this very mount takes (see
//! [`crate::environments`]): threads that serve calls never read it.
#![allow(unsafe_code, reason = "a call that has no safe name")]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rustix::ioctl::{Updater, ioctl, opcode};
use sheen_client::posix::{FileHandle, FileSystem};
use sheen_io::logged;
use sheen_types::Errno;
use sheen_wire::ost::{LadviseHdr, LuLadvise};
use sheen_wire::{ByteOrder, Reader, Wire, Writer};
use tokio::sync::Semaphore;

const HEADER: usize = LadviseHdr::SIZE;
const ONE: usize = LuLadvise::SIZE;
/// `LAH_COUNT_MAX`: so many are refused.
const COUNT_MAX: u32 = 1024;
/// Where the result of a lock ahead lies in its advice (`lla_lockahead_result`).
const RESULT_AT: usize = 24;
/// Callers whose memory is read at once: each may take as long as its other threads want.
static READERS: Semaphore = Semaphore::const_new(8);

/// The number of a call that hands over a header and one advice, and gets them back.
const ADVISE: u32 = opcode::read_write::<[u8; HEADER + ONE]>(b'f', 250);

/// Whether a call's number is that of advice by value, however much.
pub(crate) fn is_by_value(number: u32) -> bool {
    const SIZE: u32 = 0x3fff << 16;
    number & !SIZE == ADVISE & !SIZE
}

/// How many pieces of advice follow; none of a header that is refused anyway.
fn count(header: &LadviseHdr) -> usize {
    let is_sound = header.magic == LadviseHdr::MAGIC && header.count < COUNT_MAX;
    if is_sound { header.count as usize } else { 0 }
}

fn decoded<T: Wire>(bytes: &[u8]) -> Result<T, Errno> {
    let bytes = Bytes::copy_from_slice(bytes);
    T::decode(&mut Reader::new(&bytes, ByteOrder::Little)).map_err(|_| Errno::EINVAL)
}

fn advice_of(bytes: &[u8]) -> Result<Vec<LuLadvise>, Errno> {
    bytes.chunks_exact(ONE).map(decoded).collect()
}

/// Takes advice by value; answers what goes back.
pub(crate) async fn by_value(
    files: &FileSystem,
    handle: FileHandle,
    data: &[u8],
) -> Result<Vec<u8>, Errno> {
    let header: LadviseHdr = decoded(data.get(..HEADER).ok_or(Errno::EINVAL)?)?;
    let end = HEADER + count(&header) * ONE;
    let mut advice = advice_of(data.get(HEADER..end).ok_or(Errno::EINVAL)?)?;
    files.advise(handle, &header, &mut advice).await?;
    let mut writer = Writer::with_capacity(end);
    header.encode(&mut writer);
    advice.iter().for_each(|one| one.encode(&mut writer));
    Ok(writer.into_bytes().to_vec())
}

/// Takes advice that lies at `address` of the memory of thread `pid`, and writes results there.
pub(crate) async fn at_address(
    files: &FileSystem,
    handle: FileHandle,
    (pid, address): (u32, u64),
) -> Result<(), Errno> {
    let read = move || {
        let memory = memory_of(pid)?;
        let header: LadviseHdr = decoded(&bytes_at(&memory, address, HEADER)?)?;
        let bytes = bytes_at(&memory, address + HEADER as u64, count(&header) * ONE)?;
        Ok((memory, header, advice_of(&bytes)?))
    };
    let (memory, header, mut advice) = beside(read).await?;
    files.advise(handle, &header, &mut advice).await?;
    let write = move || {
        for (index, one) in advice.iter().enumerate() {
            if one.advice == LuLadvise::LOCKAHEAD {
                let at = address + (HEADER + index * ONE + RESULT_AT) as u64;
                let written = memory.write_all_at(&one.value3.to_ne_bytes(), at);
                written.map_err(|_| Errno::EFAULT)?;
            }
        }
        Ok(())
    };
    beside(write).await
}

/// Runs what may wait for the caller's other threads on a thread of its own.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    let _permit = READERS.acquire().await.map_err(|_| Errno::EIO)?;
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(logged!(
        Errno::EIO,
        "a call that reads its caller's memory has ended without an answer"
    ))?
}

/// The memory of a thread that waits for its call, and so is there.
fn memory_of(pid: u32) -> Result<File, Errno> {
    let path = format!("/proc/{pid}/mem");
    File::options().read(true).write(true).open(path).map_err(|error| {
        tracing::debug!(pid, %error, "the memory of a caller that gives advice may not be read");
        Errno::EOPNOTSUPP
    })
}

fn bytes_at(memory: &File, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    memory.read_exact_at(&mut bytes, address).map_err(|_| Errno::EFAULT)?;
    Ok(bytes)
}

/// Gives one piece of advice about an open file; answers what has become of it.
///
/// # Errors
/// What the mount answers; `ENOTTY` of a file that lies on none of ours.
pub fn advise(
    file: impl AsFd,
    header: &LadviseHdr,
    advice: &LuLadvise,
) -> Result<LuLadvise, Errno> {
    let mut writer = Writer::with_capacity(HEADER + ONE);
    header.encode(&mut writer);
    advice.encode(&mut writer);
    let mut bytes: [u8; HEADER + ONE] =
        writer.into_bytes()[..].try_into().map_err(|_| Errno::EINVAL)?;
    // SAFETY: by its number the call reads and writes these bytes and nothing else, whatever file it is made on.
    let done = unsafe {
        let call: Updater<'_, { ADVISE }, _> = Updater::new(&mut bytes);
        ioctl(file, call)
    };
    done.map_err(|error| u16::try_from(error.raw_os_error()).map_or(Errno::EIO, Errno))?;
    decoded(&bytes[HEADER..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_lustre_but_for_what_they_say_is_handed_over() {
        assert_eq!(ADVISE, 0xc040_66fa);
        assert!(is_by_value(0xc040_66fa) && is_by_value(0xc100_66fa));
        assert!(!is_by_value(0x8020_66fa) && !is_by_value(0xc040_66fb));
    }

    #[test]
    fn memory_is_read_and_written_where_the_caller_says() {
        let mut header =
            LadviseHdr { magic: LadviseHdr::MAGIC, count: 1023, ..LadviseHdr::default() };
        assert_eq!(count(&header), 1023);
        header.count = 1024;
        assert_eq!(count(&header), 0);
        let own = [7_u8; 40];
        let memory = memory_of(std::process::id()).expect("our own");
        let address = own.as_ptr().expose_provenance() as u64;
        assert_eq!(bytes_at(&memory, address, 40), Ok(own.to_vec()));
        assert_eq!(bytes_at(&memory, 8, 40), Err(Errno::EFAULT));
    }
}
