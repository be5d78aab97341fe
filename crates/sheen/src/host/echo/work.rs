//! What the threads of a test do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use sheen_assembly::{Role, Served};
use sheen_bench::device::{MetadataTest, Work};
use sheen_io::World;
use sheen_mds::Mdt;
use sheen_oss::Ost;
use sheen_target::Target;
use sheen_types::limits::BULK_BYTES_MAX;
use sheen_types::{Errno, Fid, PAGE_BYTES};

use super::SurveyState;
use super::run::{Finish, Run, Thread};

/// Threads of one test.
const THREADS_MAX: u32 = 4096;
/// The numbers of files that all threads share evenly (`MAX_BASE_ID`).
const NUMBERS: u64 = 0xffff_ffff;
/// Bytes of a page, which has a stamp when data is verified.
const PAGE: usize = PAGE_BYTES as usize;
/// Place and object.
const STAMP: usize = 16;

/// Begins a test on what `state` says was made.
///
/// # Errors
/// [`Errno::EINVAL`] for work that does not fit the target or what was made.
pub(super) fn begin(
    world: &World,
    served: &Served,
    state: &SurveyState,
    work: Work,
) -> Result<Arc<Run>, Errno> {
    if !(1..=THREADS_MAX).contains(&work.threads()) {
        return Err(Errno::EINVAL);
    }
    let target = Arc::clone(&served.target);
    match (&served.role, work) {
        (Role::Mdt(mdt), Work::Metadata { test, threads, count, start, stripes }) => {
            if state.directories.is_empty() {
                return Err(Errno::EINVAL);
            }
            let share = NUMBERS / u64::from(threads);
            if count > share || start.checked_add(NUMBERS).is_none() {
                return Err(Errno::EINVAL);
            }
            let metadata = Metadata {
                mdt: Arc::clone(mdt),
                target,
                directories: state.directories.clone(),
                test,
                count,
                start,
                share,
                stripes,
            };
            let metadata = Arc::new(metadata);
            let body = |thread| -> Finish { Box::pin(Arc::clone(&metadata).run(thread)) };
            Ok(Run::begin(world, threads, body, Box::pin(async { Ok(()) })))
        }
        (Role::Ost(ost), Work::Data { write, threads, record, count, verify, sync }) => {
            let (first, objects) = state.objects;
            let bytes = record as usize;
            let fits = objects > 0 && threads.is_multiple_of(objects);
            if !fits || bytes == 0 || !bytes.is_multiple_of(PAGE) || bytes > BULK_BYTES_MAX {
                return Err(Errno::EINVAL);
            }
            let data = Data {
                target: Arc::clone(&target),
                first,
                per_object: threads / objects,
                places: (0..objects).map(|_| AtomicU64::new(0)).collect(),
                bytes,
                count,
                write,
                verify,
                filling: filling(bytes),
            };
            let data = Arc::new(data);
            let body = |thread| -> Finish { Box::pin(Arc::clone(&data).run(thread)) };
            let finish = durable(Arc::clone(ost), target, state.objects, write && sync);
            Ok(Run::begin(world, threads, body, finish))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Waits, if `wanted`, until the bytes of all objects are durable.
fn durable(ost: Arc<Ost>, target: Arc<Target>, objects: (u64, u32), wanted: bool) -> Finish {
    Box::pin(async move {
        match wanted {
            true => ost.echo_sync(&target, objects.0, objects.1).await,
            false => Ok(()),
        }
    })
}

struct Metadata {
    mdt: Arc<Mdt>,
    target: Arc<Target>,
    directories: Vec<Fid>,
    test: MetadataTest,
    count: u64,
    start: u64,
    /// How far the numbers of two threads are apart.
    share: u64,
    stripes: i32,
}

impl Metadata {
    async fn run(self: Arc<Self>, thread: Thread) -> Result<(), Errno> {
        let mut worker = sheen_mds::EchoWorker::new(&self.mdt, &self.target)?;
        let directory = self.directories[thread.index() % self.directories.len()];
        let first = self.start + thread.index() as u64 * self.share;
        let mut done = Ok(());
        for number in first..first + self.count {
            done = match self.test {
                MetadataTest::Create => worker.create(directory, number, self.stripes).await,
                MetadataTest::Lookup => worker.lookup(directory, number).map(drop),
                MetadataTest::Getattr => worker.getattr(directory, number).await,
                MetadataTest::Setxattr => worker.setxattr(directory, number).await,
                MetadataTest::Destroy => worker.destroy(directory, number).await,
            };
            if done.is_err() || !thread.goes_on().await {
                break;
            }
        }
        worker.disconnect().await;
        done
    }
}

struct Data {
    target: Arc<Target>,
    first: u64,
    /// Threads that share one.
    per_object: u32,
    /// The next place of each object.
    places: Vec<AtomicU64>,
    bytes: usize,
    count: u64,
    write: bool,
    verify: bool,
    /// What is written where its content does not matter.
    filling: Bytes,
}

impl Data {
    async fn run(self: Arc<Self>, thread: Thread) -> Result<(), Errno> {
        let worker = sheen_oss::EchoWorker::new(&self.target)?;
        let index = thread.index() / self.per_object as usize;
        let object = self.first + index as u64;
        let mut done = Ok(());
        for _ in 0..self.count {
            let offset = self.places[index].fetch_add(self.bytes as u64, Ordering::Relaxed);
            done = self.transfer(&worker, object, offset).await;
            if done.is_err() || !thread.goes_on().await {
                break;
            }
        }
        worker.disconnect().await;
        done
    }

    async fn transfer(
        &self,
        worker: &sheen_oss::EchoWorker,
        object: u64,
        offset: u64,
    ) -> Result<(), Errno> {
        if self.write {
            let data = match self.verify {
                true => stamped(&self.filling, object, offset),
                false => self.filling.clone(),
            };
            return worker.write(object, offset, data).await;
        }
        let data = worker.read(object, offset, self.bytes).await?;
        let is_right =
            data.len() == self.bytes && (!self.verify || has_stamps(&data, object, offset));
        match is_right {
            true => Ok(()),
            false => {
                tracing::error!(object, offset, length = data.len(), "a survey read wrong data");
                Err(Errno::EIO)
            }
        }
    }
}

/// Bytes that no file system finds a pattern in.
fn filling(bytes: usize) -> Bytes {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut filling = BytesMut::with_capacity(bytes);
    while filling.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        filling.extend_from_slice(&state.to_le_bytes());
    }
    filling.freeze()
}

fn stamp(object: u64, place: u64) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&place.to_le_bytes());
    stamp[8..].copy_from_slice(&object.to_le_bytes());
    stamp
}

/// `filling` with place and object at the beginning of each page.
fn stamped(filling: &Bytes, object: u64, offset: u64) -> Bytes {
    let mut data = BytesMut::from(&filling[..]);
    for (page, bytes) in data.chunks_exact_mut(PAGE).enumerate() {
        bytes[..STAMP].copy_from_slice(&stamp(object, offset + (page * PAGE) as u64));
    }
    data.freeze()
}

fn has_stamps(data: &[u8], object: u64, offset: u64) -> bool {
    let right = |(page, bytes): (usize, &[u8])| {
        bytes[..STAMP] == stamp(object, offset + (page * PAGE) as u64)
    };
    data.chunks_exact(PAGE).enumerate().all(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_distinguish_a_page_of_another_place_or_object() {
        let filling = filling(3 * PAGE);
        assert_eq!(filling.len(), 3 * PAGE);
        let data = stamped(&filling, 7, 8192);
        assert!(has_stamps(&data, 7, 8192));
        assert!(!has_stamps(&data, 8, 8192) && !has_stamps(&data, 7, 4096));
        assert!(!has_stamps(&filling, 7, 8192));
        assert_eq!(data[STAMP..PAGE], filling[STAMP..PAGE]);
    }
}
