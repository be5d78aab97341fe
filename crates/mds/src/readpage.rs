//! MDS_READPAGE: pages of a directory, in the order of hashes.

use bytes::Bytes;
use sheen_store::FileKind;
use sheen_target::{Context, Outcome, Wait, store_errno, while_waiting};
use sheen_types::{Errno, Fid};
use sheen_wire::dir::{DirEntry, DirPage, DirPageHeader, HASH_END, PAGE_SIZE, PageFlags};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{MdsReadpage, MdsReadpageReply};

use crate::Mdt;
use crate::directory::{HASH_DOT, HASH_DOT_DOT, damaged_entry, parse_key, parse_value};
use crate::distributed_exclusions::KeyRef;

/// Bytes sent at once at most: Lustre's bulk of a directory.
const BYTES_MAX: usize = 1 << 20;
/// Entries read from the store at a time.
const SCAN_STEP: usize = 512;

/// Reads the entries of a directory one after the other, from a hash on.
struct Walk<'a> {
    mdt: &'a Mdt,
    directory: Fid,
    parent: Fid,
    from: Vec<u8>,
    /// Entries read and not yet taken, the next one last.
    ahead: Vec<DirEntry>,
    is_over: bool,
}

impl<'a> Walk<'a> {
    fn new(mdt: &'a Mdt, directory: Fid, hash: u64) -> Result<Self, Errno> {
        let parent = mdt.parent(directory)?;
        // Of one that lies elsewhere its MDT would have to be asked: clients look `..` up.
        let parent = match mdt.is_remote(parent) {
            true => parent,
            false => match mdt.master_of(parent) {
                // Of an MDT that is not known yet.
                Err(Errno::ENOENT) => parent,
                master => master?.unwrap_or(parent),
            },
        };
        let from = hash.to_be_bytes().to_vec();
        // What a master has are its stripes: clients list those.
        let is_over = !mdt.stripes_of(directory)?.is_empty();
        let mut walk = Self { mdt, directory, parent, from, ahead: Vec::new(), is_over };
        walk.add_dots(hash);
        Ok(walk)
    }

    fn add_dots(&mut self, hash: u64) {
        let kind = FileKind::Directory.mode_bits() as u16;
        let dots = [
            (HASH_DOT_DOT, self.parent, Bytes::from_static(b"..")),
            (HASH_DOT, self.directory, Bytes::from_static(b".")),
        ];
        for (position, fid, name) in dots {
            if hash <= position {
                self.ahead.push(DirEntry::new(fid, position, name, kind));
            }
        }
    }

    fn next(&mut self) -> Result<Option<DirEntry>, Errno> {
        if self.ahead.is_empty() && !self.is_over {
            self.read_ahead()?;
        }
        Ok(self.ahead.pop())
    }

    fn read_ahead(&mut self) -> Result<(), Errno> {
        let entries = self.mdt.store.scan(self.directory, &self.from, SCAN_STEP);
        let entries = entries.map_err(store_errno)?;
        self.is_over = entries.len() < SCAN_STEP;
        if let Some(last) = entries.last() {
            self.from = [&last.key[..], &[0]].concat();
        }
        for entry in entries.into_iter().rev() {
            let damaged = || damaged_entry(self.directory, &entry.key);
            let (hash, name) = parse_key(&entry.key).ok_or_else(damaged)?;
            let child = parse_value(&entry.value).ok_or_else(damaged)?;
            self.ahead.push(DirEntry::new(child.fid, hash, name, child.kind.mode_bits() as u16));
        }
        Ok(())
    }

    fn put_back(&mut self, entry: DirEntry) {
        self.ahead.push(entry);
    }

    /// The next page, which starts at `hash`. Names that share a hash are not torn apart unless
    /// they fill more than a page: then the page says that the next goes on with its last hash.
    fn page(&mut self, hash: u64) -> Result<DirPage, Errno> {
        let mut room = DirPage::ROOM;
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut header = DirPageHeader { hash_start: hash, ..DirPageHeader::default() };
        while let Some(entry) = self.next()? {
            if let Some(rest) = room.checked_sub(entry.size()) {
                room = rest;
                entries.push(entry);
                continue;
            }
            header.hash_end = entry.hash;
            let torn = entry.hash;
            self.put_back(entry);
            if entries.first().is_some_and(|first| first.hash == torn) {
                header.flags = PageFlags::COLLIDE;
                return Ok(DirPage { header, entries });
            }
            while entries.last().is_some_and(|last| last.hash == torn) {
                let Some(last) = entries.pop() else { break };
                self.put_back(last);
            }
            return Ok(DirPage { header, entries });
        }
        header.hash_end = HASH_END;
        Ok(DirPage { header, entries })
    }
}

impl Mdt {
    /// Pages from a hash on: as many as there are, or as the client has room for. Permission is a
    /// matter of the open: a client that has the directory open reads it, whatever becomes of its
    /// mode.
    pub(crate) async fn readpage(
        &self,
        context: &Context,
        request: &MdsReadpage,
    ) -> Result<Outcome, Errno> {
        let asked = &request.mdt_body;
        let room = (asked.nlink as usize).min(BYTES_MAX) / PAGE_SIZE;
        if room == 0 {
            return Err(Errno::EINVAL);
        }
        let bytes = room * PAGE_SIZE;
        let _memory = while_waiting(Wait::Bulk, context.bulk.reserve(bytes)).await;
        let read = || {
            let directory = self.directory(asked.fid1)?;
            self.pages(directory.fid, asked.size, room)
        };
        let pages = self.exclusion.distributed.shown(KeyRef::Listing(asked.fid1), read).await?;
        while_waiting(Wait::Bulk, context.bulk.push(pages)).await.map_err(|error| error.errno())?;
        let mdt_body = Some(MdtBody::default());
        Ok(Outcome::ok(MdsReadpageReply { mdt_body, ..MdsReadpageReply::default() }))
    }

    /// At most `room` pages, and at least one.
    pub(crate) fn pages(
        &self,
        directory: Fid,
        hash: u64,
        room: usize,
    ) -> Result<Vec<Bytes>, Errno> {
        let mut walk = Walk::new(self, directory, hash)?;
        let mut pages = Vec::new();
        let mut at = hash;
        while pages.len() < room && at != HASH_END {
            let page = walk.page(at)?;
            at = page.header.hash_end;
            pages.push(page.encode());
        }
        if pages.is_empty() {
            let header =
                DirPageHeader { hash_start: hash, hash_end: HASH_END, ..Default::default() };
            pages.push(DirPage { header, entries: Vec::new() }.encode());
        }
        Ok(pages)
    }
}
