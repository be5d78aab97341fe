//! The pages of a directory that were read, by the hashes of their names.
//!
//! A directory is read in chunks. A chunk starts at a hash and holds every name from that hash on, in
//! the order of hashes, up to where the next chunk starts. A [`Position`] is a hash and how many names
//! of just that hash are done with: names may share a hash, and a chunk may end among them. Then the
//! next chunk starts with the first of them again, so counting starts anew there.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_types::{Errno, Fid};
use sheen_wire::codec::DecodeError;
use sheen_wire::dir::{DirEntry, DirPage, HASH_END, PAGE_SIZE};

/// Chunks kept for one directory, some 200,000 names. Reading on in a larger directory asks again.
const CHUNKS_MAX: usize = 32;

/// Where reading goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Names of smaller hashes are done.
    pub(crate) hash: u64,
    /// So many names of this hash are done.
    pub(crate) done: usize,
}

/// Names from `start` on.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: u64,
    /// Where the next chunk starts; [`HASH_END`] if there is none.
    end: u64,
    entries: Vec<DirEntry>,
    /// Of a directory in stripes: what was read of each, this chunk's names and what follows them.
    stripes: Vec<StripeChunks>,
}

/// Chunks of one stripe, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct StripeChunks {
    pub(crate) stripe: Fid,
    pub(crate) chunks: VecDeque<Arc<Chunk>>,
}

/// What is wrong with the pages that an MDT has sent.
#[derive(Debug)]
pub(crate) enum BadChunk {
    /// So many bytes are no whole pages.
    Length(usize),
    /// One cannot be read.
    Page(DecodeError),
    /// They are not in the order of hashes.
    Order,
    /// They end where they begin: the server runs backward, or more names share one hash than fit in a chunk.
    NoProgress,
}

impl BadChunk {
    /// What the caller gets.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Length(_) | Self::Page(_) | Self::Order => Errno::EPROTO,
            Self::NoProgress => Errno::EIO,
        }
    }
}

impl fmt::Display for BadChunk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(out, "{bytes} bytes are no whole pages"),
            Self::Page(error) => write!(out, "{error}"),
            Self::Order => out.write_str("not in the order of hashes"),
            Self::NoProgress => out.write_str("they end where they begin"),
        }
    }
}

/// The chunks of one directory, while a lock covers them.
#[derive(Default)]
pub(crate) struct DirPages(Mutex<BTreeMap<u64, Arc<Chunk>>>);

impl Position {
    /// The end of every directory.
    pub(crate) const END: Position = Position { hash: HASH_END, done: 0 };
}

impl Chunk {
    /// Of a directory that was removed while it was open: it has no names any more.
    pub(crate) fn of_removed(start: u64) -> Self {
        Self { start, end: HASH_END, entries: Vec::new(), stripes: Vec::new() }
    }

    /// The names that all stripes of a directory have from `start` on, up to where the first of them was read no further.
    /// Of `.` and `..` the first stripe's stay, as those of the directory itself and the one that it is in.
    pub(crate) fn merge(
        start: u64,
        (directory, above): (Fid, Fid),
        stripes: Vec<StripeChunks>,
    ) -> Self {
        let end = stripes.iter().map(StripeChunks::end).min().unwrap_or(HASH_END);
        let mut entries = Vec::new();
        for (number, stripe) in stripes.iter().enumerate() {
            // A chunk that another reader has left may begin before the one in front of it ends.
            let mut read = 0;
            let names = stripe.chunks.iter().flat_map(|chunk| {
                let from = std::mem::replace(&mut read, chunk.end);
                chunk.own_entries().filter(move |entry| entry.hash >= from)
            });
            let names = names.filter(|entry| start <= entry.hash && entry.hash < end);
            entries.extend(names.filter_map(|entry| {
                let fid = match &entry.name[..] {
                    b"." => directory,
                    b".." => above,
                    _ => return Some(entry.clone()),
                };
                (number == 0).then(|| DirEntry { fid, ..entry.clone() })
            }));
        }
        // Names of one hash have the same order in whichever stripe each is.
        entries.sort_by(|one, other| (one.hash, &one.name[..]).cmp(&(other.hash, &other.name[..])));
        Self { start, end, entries, stripes }
    }

    /// Merges several readings of each stripe, of which the later ones are first: each name once, as the first of
    /// them has it. Nothing of it is of use for the next chunk.
    pub(crate) fn merge_moving(
        start: u64,
        directory_and_above: (Fid, Fid),
        readings: Vec<StripeChunks>,
    ) -> Self {
        // MDTs of Lustre have a seed each, so a name has another hash in another stripe.
        let later = readings.iter().take(readings.len() / 2);
        let later = later.flat_map(|stripe| &stripe.chunks).flat_map(|chunk| &chunk.entries);
        let later = later.filter(|entry| !matches!(&entry.name[..], b"." | b".."));
        let hashes: BTreeMap<Bytes, u64> =
            later.map(|entry| (entry.name.clone(), entry.hash)).collect();
        let mut merged = Self::merge(start, directory_and_above, readings);
        merged.entries.retain(|it| hashes.get(&it.name).is_none_or(|hash| *hash == it.hash));
        merged.entries.dedup_by(|other, one| one.hash == other.hash && one.name == other.name);
        merged.stripes = Vec::new();
        merged
    }

    /// What it was merged of.
    pub(crate) fn stripes(&self) -> &[StripeChunks] {
        &self.stripes
    }

    /// The names that no next chunk has again.
    fn own_entries(&self) -> impl Iterator<Item = &DirEntry> {
        self.entries.iter().filter(|entry| entry.hash < self.end || self.end == HASH_END)
    }

    /// Puts the pages of one answer together.
    pub(crate) fn decode(start: u64, bulk: &[Bytes]) -> Result<Self, BadChunk> {
        let mut chunk = Self::of_removed(start);
        for part in bulk {
            if part.len() % PAGE_SIZE != 0 {
                return Err(BadChunk::Length(part.len()));
            }
            for at in (0..part.len()).step_by(PAGE_SIZE) {
                let page = part.slice(at..at + PAGE_SIZE);
                let page = DirPage::decode(&page).map_err(BadChunk::Page)?;
                let last = chunk.entries.last().map_or(start, |entry| entry.hash);
                if page.entries.first().is_some_and(|entry| entry.hash < last) {
                    return Err(BadChunk::Order);
                }
                chunk.end = page.header.hash_end;
                chunk.entries.extend(page.entries);
            }
        }
        let last = chunk.entries.last().map_or(start, |entry| entry.hash);
        if chunk.end < last || chunk.end == start && chunk.end != HASH_END {
            return Err(BadChunk::NoProgress);
        }
        Ok(chunk)
    }

    /// Whether names at `position` are in this chunk, if they are anywhere.
    pub(crate) fn holds(&self, position: Position) -> bool {
        self.start <= position.hash && position.hash < self.end
            || self.start == position.hash && position.hash == self.end
    }

    /// The names from `position` on, each with the position behind it.
    pub(crate) fn from(
        &self,
        position: Position,
    ) -> impl Iterator<Item = (&DirEntry, Position)> + '_ {
        let first = self.entries.partition_point(|entry| entry.hash < position.hash);
        let first = (first + position.done).min(self.entries.len());
        (first..self.entries.len()).map(|index| (&self.entries[index], self.behind(index)))
    }

    /// All names with their hashes.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.entries.iter().map(|entry| (entry.hash, &entry.name[..]))
    }

    /// Where the names behind this chunk begin.
    pub(crate) fn next_chunk(&self) -> Position {
        Position { hash: self.end, done: 0 }
    }

    fn behind(&self, index: usize) -> Position {
        let hash = self.entries[index].hash;
        let next = self.entries.get(index + 1).map_or(self.end, |entry| entry.hash);
        if next != hash {
            return Position { hash: next, done: 0 };
        }
        let first = self.entries.partition_point(|entry| entry.hash < hash);
        Position { hash, done: index + 1 - first }
    }
}

impl StripeChunks {
    /// Nothing was read of it.
    pub(crate) fn new(stripe: Fid) -> Self {
        Self { stripe, chunks: VecDeque::new() }
    }

    /// Up to which hash it was read.
    fn end(&self) -> u64 {
        self.chunks.back().map_or(0, |chunk| chunk.end)
    }

    /// Drops what lies before a position; all if it was not read there.
    pub(crate) fn drop_before(&mut self, position: Position) {
        while self.chunks.front().is_some_and(|chunk| !chunk.holds(position)) {
            self.chunks.pop_front();
        }
    }

    /// From where it is to be read on, with other stripes that are: where it was not read, or has less than half a chunk left and
    /// fewer than `most` chunks.
    pub(crate) fn reads_on(&self, position: Position, most: usize) -> Option<u64> {
        let Some(last) = self.chunks.back() else { return Some(position.hash) };
        let left = last.from(position).count();
        let is_wanted = self.chunks.len() < most && left < last.entries.len().div_ceil(2);
        (is_wanted && last.end != HASH_END).then_some(last.end)
    }
}

impl DirPages {
    pub(crate) fn find(&self, position: Position) -> Option<Arc<Chunk>> {
        let chunks = self.0.lock();
        let (_, chunk) = chunks.range(..=position.hash).next_back()?;
        chunk.holds(position).then(|| Arc::clone(chunk))
    }

    pub(crate) fn keep(&self, chunk: &Arc<Chunk>) {
        let mut chunks = self.0.lock();
        if chunks.len() < CHUNKS_MAX {
            chunks.insert(chunk.start, Arc::clone(chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sheen_wire::dir::{DirPageHeader, PageFlags};

    use super::*;

    /// Serves a directory as an MDT does: pages of at most `room` names from a hash on.
    fn serve(names: &[(u64, String)], hash: u64, room: usize, pages: usize) -> Vec<Bytes> {
        let mut at = names.partition_point(|(known, _)| *known < hash);
        let mut out = Vec::new();
        for _ in 0..pages {
            let end = (at + room).min(names.len());
            let hash_end = names.get(end).map_or(HASH_END, |(hash, _)| *hash);
            let collide = end > at && end < names.len() && names[end - 1].0 == hash_end;
            let entry = |(hash, name): &(u64, String)| {
                DirEntry::new(Fid::new(1, 1), *hash, Bytes::from(name.clone()), 0o100_000)
            };
            let page = DirPage {
                header: DirPageHeader {
                    hash_end,
                    flags: if collide { PageFlags::COLLIDE } else { PageFlags::NONE },
                    ..DirPageHeader::default()
                },
                entries: names[at..end].iter().map(entry).collect(),
            };
            out.push(page.encode());
            at = end;
            if at == names.len() {
                break;
            }
        }
        out
    }

    proptest! {
        #[test]
        fn a_walk_gives_every_name_once(
            mut hashes in prop::collection::vec(1u64..40, 0..60),
            room in 5usize..9,
            take in 1usize..7,
        ) {
            hashes.sort_unstable();
            // No more names of one hash than a chunk holds.
            let mut names: Vec<(u64, String)> = Vec::new();
            for hash in hashes {
                if names.iter().filter(|(known, _)| *known == hash).count() < 2 * room {
                    let name = format!("n{}", names.len());
                    names.push((hash, name));
                }
            }
            let pages = DirPages::default();
            let mut position = Position::default();
            let mut seen = Vec::new();
            while position != Position::END {
                let chunk = match pages.find(position) {
                    Some(chunk) => chunk,
                    None => {
                        let bulk = serve(&names, position.hash, room, 3);
                        let chunk = Arc::new(Chunk::decode(position.hash, &bulk).unwrap());
                        pages.keep(&chunk);
                        chunk
                    }
                };
                // A caller with little room stops within a chunk and comes back by position.
                let mut stepped = false;
                for (entry, next) in chunk.from(position).take(take) {
                    seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    position = next;
                    stepped = true;
                }
                if !stepped {
                    prop_assert!(chunk.end > position.hash);
                    position = Position { hash: chunk.end, done: 0 };
                }
            }
            let all: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
            prop_assert_eq!(seen, all);
        }
    }

    #[test]
    fn chunks_of_a_stripe_that_overlap_give_each_name_once() {
        let names: Vec<(u64, String)> = (1..20).map(|hash| (hash, format!("n{hash}"))).collect();
        let chunk = |from, until: usize| {
            let bulk = serve(&names[..until], from, 100, 1);
            let mut chunk = Chunk::decode(from, &bulk).expect("a chunk");
            chunk.end = names.get(until).map_or(HASH_END, |(hash, _)| *hash);
            Arc::new(chunk)
        };
        let mut stripe = StripeChunks::new(Fid::new(1, 1));
        stripe.chunks.extend([chunk(0, 9), chunk(7, 19)]);
        let merged = Chunk::merge(3, (Fid::new(1, 2), Fid::new(1, 3)), vec![stripe]);
        let hashes: Vec<u64> = merged.names().map(|(hash, _)| hash).collect();
        assert_eq!(hashes, (3..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_server_that_runs_in_circles_is_an_error() {
        let names: Vec<(u64, String)> = (0..20).map(|index| (7, format!("n{index}"))).collect();
        let bulk = serve(&names, 7, 5, 2);
        assert_eq!(Chunk::decode(7, &bulk).unwrap_err().errno(), Errno::EIO);
        assert_eq!(
            Chunk::decode(0, &[Bytes::from_static(b"short")]).unwrap_err().errno(),
            Errno::EPROTO
        );
    }
}
