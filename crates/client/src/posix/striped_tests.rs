//! Directories that lie in stripes, on two MDTs that have what a test puts there and refuse names that are elsewhere.

mod making;
mod moved;
mod moving;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::directory::{
    DirectoryLayout, DirectoryWish, FORMER, Holder, WishedStripes, former_with,
};
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, MdtIndex};
use sheen_wire::dir::{DirEntry as WireEntry, DirPage, DirPageHeader, HASH_END};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest};
use sheen_wire::lmv::{LmvEa, LmvHash};
use sheen_wire::md::{Bias, MdsOpenFlags, MdtBody, ObdStatfs, Valid};
use sheen_wire::messages::{
    LdlmEnqueueReply, LdlmIntentGetattr, LdlmIntentGetattrReply, LdlmIntentOpenReply,
    MdsCloseReply, MdsGetattrReply, MdsGetxattr, MdsGetxattrReply, MdsReadpageReply,
    MdsReintCreateReply, MdsReintCreateSymReply, MdsReintLinkReply, MdsReintMigrateReply,
    MdsReintRenameReply, MdsReintSetattrReply, MdsReintSetxattrReply, MdsReintUnlinkReply,
    MdsStatfsReply, Reply, Request,
};
use sheen_wire::text::Text;

use super::tests::{entry, look_up};
use super::{
    Credentials, DirCookie, FileHandle, Lookup, NewNode, NodeId, OpenFlags, RenameMode,
    SetAttributes,
};
use crate::testing::{
    AnotherMdt, Fixture, absent, batch_reply, blocking, body, found_elsewhere, lock_reply, name,
    opened, parts_of, super_range,
};

const MASTER: Fid = Fid::new(0x2_0000_0401, 8);
/// The stripes: the first on MDT0001, the second on MDT0000, the third on MDT0001 again.
const STRIPES: [Fid; 3] =
    [Fid::new(0x2_4000_0400, 4), Fid::new(0x2_0000_0400, 4), Fid::new(0x2_4000_0400, 5)];
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const WHOLE: InodeBits = InodeBits(0x13);

/// What is in a directory: by name its hash, what it stands for, and the mode of that.
type Names = BTreeMap<String, (u64, Fid, u32)>;

/// What both MDTs have.
struct Cluster {
    /// The directory in stripes.
    master: Fid,
    layout: DirectoryLayout,
    /// Of each stripe, of what is in one piece, and of the root.
    directories: BTreeMap<Fid, Names>,
    locks: u64,
    /// Granted locks, with what they were asked by.
    granted: Vec<(Fid, LdlmRequest, LdlmReply)>,
    /// What was asked: of which MDT, what, about which inode.
    asked: Vec<(u32, String, Fid)>,
    /// Names of a page at most.
    page: usize,
    /// Attributes of stripes: links, size, time.
    stats: BTreeMap<Fid, (u32, u64, i64)>,
    /// Of directories that were made the MDT, and whether by their parent's default.
    made: Vec<(u32, bool)>,
    /// Stripes that refuse everything.
    gone: BTreeSet<Fid>,
    /// None of them is a stripe yet.
    are_whole: bool,
    /// A name that moves once this stripe was asked for it, or read, and the answer is on its way.
    moves_behind: Option<(Fid, String)>,
    /// No lock covers the names of stripes, as where names move all the time.
    grants_no_names: bool,
    /// So many questions about names of the root are refused, as where that moves.
    refused: u32,
    /// What was asked about moves.
    moves: Vec<(u32, Request)>,
    /// What the master was before, as it says; a Lustre server says nothing.
    former: Vec<Fid>,
    /// A name that moves gets another hash, as on MDTs of Lustre, which have a seed each.
    rehashes: bool,
    /// A directory to migrate is there already.
    is_there_already: bool,
}

fn layout_of(hash: LmvHash, stripes: &[Fid]) -> DirectoryLayout {
    DirectoryLayout::new(MdtIndex(1), hash, stripes.to_vec()).expect("a layout")
}

fn text_of(text: Option<&Text>) -> String {
    text.map(Text::to_text).unwrap_or_default()
}

impl Cluster {
    fn new() -> Self {
        let root = [("d".to_owned(), (1, MASTER, DIRECTORY))];
        let mut directories = BTreeMap::from([(Fid::ROOT, Names::from(root))]);
        directories.extend(STRIPES.map(|stripe| (stripe, Names::new())));
        Self {
            master: MASTER,
            layout: layout_of(LmvHash::FNV_1A_64, &STRIPES),
            directories,
            locks: 0,
            granted: Vec::new(),
            asked: Vec::new(),
            page: 50,
            stats: BTreeMap::new(),
            made: Vec::new(),
            gone: BTreeSet::new(),
            are_whole: false,
            moves_behind: None,
            grants_no_names: false,
            refused: 0,
            moves: Vec::new(),
            former: Vec::new(),
            rehashes: false,
            is_there_already: false,
        }
    }

    /// The attribute of the directories that a master was before.
    fn former(&mut self, mdt: u32, asked: &MdsGetxattr) -> Result<MdsGetxattrReply, Errno> {
        let on = asked.mdt_body.fid1;
        self.note(mdt, "former", on);
        assert_eq!(text_of(asked.name.as_ref()), FORMER);
        let fids = self.former.iter().rev().filter(|_| on == self.master);
        let eadata = fids.fold(Bytes::new(), |before, fid| former_with(*fid, &before));
        match eadata.is_empty() {
            true => Err(Errno::ENODATA),
            false => Ok(MdsGetxattrReply { eadata, ..Default::default() }),
        }
    }

    /// Where a name may be while names are being moved.
    fn stripe_before(&self, name: &str) -> Option<Fid> {
        let before = self.layout.places(name.as_bytes()).ok()?.before?;
        self.stripes().get(before as usize).copied()
    }

    /// The answer about this stripe is on its way.
    fn move_behind(&mut self, stripe: Fid) {
        let is_due = self.moves_behind.as_ref().is_some_and(|(on, _)| *on == stripe);
        if let Some((_, name)) = self.moves_behind.take_if(|_| is_due) {
            let (from, to) = (self.stripe_before(&name).expect("it moves"), self.stripe_of(&name));
            let from = self.directories.get_mut(&from).expect("a stripe");
            let mut moved = from.remove(&name).expect("it is there");
            moved.0 = if self.rehashes { 1000 - moved.0 } else { moved.0 };
            self.directories.entry(to).or_default().insert(name, moved);
        }
    }

    fn stripes(&self) -> Vec<Fid> {
        match self.layout.holder() {
            Holder::Master { stripes, .. } => stripes.to_vec(),
            Holder::Stripe { .. } => Vec::new(),
        }
    }

    /// The first one where the hash is unknown.
    fn stripe_of(&self, name: &str) -> Fid {
        let places = self.layout.places(name.as_bytes());
        self.stripes()[places.map_or(0, |places| places.now as usize)]
    }

    /// A name of that stripe; another one for each `number`.
    fn name_in(&self, stripe: Fid, number: usize) -> String {
        let names = (0..).map(|at| format!("f{at}"));
        names.filter(|name| self.stripe_of(name) == stripe).nth(number).expect("some")
    }

    /// A name is refused where it does not belong.
    fn names(&mut self, directory: Fid, name: &str) -> Result<&mut Names, Errno> {
        let is_stripe = STRIPES.contains(&directory) && !self.are_whole;
        let is_known = self.layout.hash().0 & LmvHash::BAD_TYPE == 0
            && self.layout.places(name.as_bytes()).is_ok();
        let is_elsewhere = is_stripe
            && is_known
            && self.stripe_of(name) != directory
            && self.stripe_before(name) != Some(directory);
        if self.gone.contains(&directory) || is_elsewhere || directory == self.master {
            return Err(Errno::ESTALE);
        }
        Ok(self.directories.entry(directory).or_default())
    }

    fn grant(&mut self, fid: Fid, asked: &LdlmRequest, bits: InodeBits) -> LdlmReply {
        self.locks += 1;
        let lock = lock_reply(fid, 0x9000 + self.locks, LockMode::Pr, bits);
        self.granted.push((fid, asked.clone(), lock.clone()));
        lock
    }

    fn body(&self, fid: Fid, mode: u32) -> (MdtBody, Bytes) {
        let mut body = body(fid, mode);
        if let Some((nlink, size, mtime)) = self.stats.get(&fid) {
            body.valid |= Valid::SIZE | Valid::BLOCKS;
            (body.nlink, body.size, body.blocks, body.mtime) = (*nlink, *size, *size / 512, *mtime);
        }
        let stripes = self.stripes();
        let layout = match stripes.iter().position(|stripe| *stripe == fid) {
            _ if fid == self.master => Some(self.layout.clone()),
            Some(_) if self.are_whole => None,
            Some(number) => self.layout.of_stripe(number as u32),
            None => None,
        };
        let Some(layout) = layout else { return (body, Bytes::new()) };
        body.valid |= Valid::DIREA | Valid::MEA;
        (body, layout.to_ea().encode())
    }

    fn attributes(&mut self, fid: Fid, mode: u32, asked: &LdlmRequest) -> LdlmIntentGetattrReply {
        let lock = self.grant(fid, asked, WHOLE);
        let (body, layout) = self.body(fid, mode);
        LdlmIntentGetattrReply {
            dlm_rep: Some(lock),
            mdt_body: Some(body),
            mdt_md: layout,
            ..LdlmIntentGetattrReply::default()
        }
    }

    fn getattr(&mut self, mdt: u32, asked: &LdlmIntentGetattr) -> LdlmIntentGetattrReply {
        let (on, name) = (asked.mdt_body.fid1, text_of(asked.name.as_ref()));
        self.note(mdt, "getattr", on);
        if name.is_empty() && self.gone.contains(&on) {
            return refused(Errno::ENOENT);
        }
        if name.is_empty() {
            let all = self.directories.values().flat_map(Names::values);
            let mode = all.filter(|(_, fid, _)| *fid == on).map(|(.., mode)| *mode).next();
            return self.attributes(on, mode.unwrap_or(DIRECTORY), &asked.dlm_req);
        }
        if on == Fid::ROOT && self.refused > 0 {
            self.refused -= 1;
            return refused(Errno::ESTALE);
        }
        match self.names(on, &name).map(|names| names.get(&name).copied()) {
            Err(errno) => refused(errno),
            Ok(None) => {
                self.move_behind(on);
                absent()
            }
            Ok(Some((_, fid, _))) if !is_on(fid, mdt) => {
                self.locks += 1;
                found_elsewhere(fid, 0x9000 + self.locks)
            }
            Ok(Some((_, fid, mode))) => self.attributes(fid, mode, &asked.dlm_req),
        }
    }

    fn note(&mut self, mdt: u32, what: &str, on: Fid) {
        assert!(is_on(on, mdt), "MDT {mdt} is asked for {on}: {what}");
        self.asked.push((mdt, what.to_owned(), on));
    }

    fn add(&mut self, directory: Fid, name: &str, fid: Fid, mode: u32) -> Result<bool, Errno> {
        let before = self.stripe_before(name).filter(|_| !self.are_whole);
        let has =
            |stripe: Fid| self.directories.get(&stripe).is_some_and(|it| it.contains_key(name));
        match before {
            Some(before) if before == directory && !has(before) => return Err(Errno::ESTALE),
            Some(before) if before != directory && has(before) => return Err(Errno::EEXIST),
            _ => {}
        }
        let names = self.names(directory, name)?;
        let hash = (names.len() as u64 + 3) * 10;
        let is_new = !names.contains_key(name);
        names.entry(name.to_owned()).or_insert((hash, fid, mode));
        Ok(is_new)
    }

    fn answer(&mut self, mdt: u32, request: &Request, source: &Bytes) -> Result<Answered, Errno> {
        let reply: Reply = match request {
            Request::LdlmIntentGetattr(asked) => self.getattr(mdt, asked).into(),
            Request::MdsBatch(asked) => {
                let parts = parts_of(asked, source);
                self.asked.push((mdt, format!("batch of {}", parts.len()), Fid::ZERO));
                let answers: Vec<_> =
                    parts.iter().map(|part| (0, self.getattr(mdt, part))).collect();
                batch_reply(&answers).into()
            }
            Request::MdsGetattr(asked) => {
                let on = asked.mdt_body.fid1;
                self.note(mdt, "attributes", on);
                let (body, mdt_md) = self.body(on, DIRECTORY);
                let mdt_body = Some(body);
                MdsGetattrReply { mdt_body, mdt_md, ..Default::default() }.into()
            }
            Request::LdlmIntentOpen(asked) => {
                let (on, name) = (asked.rec_reint.fid1, text_of(asked.name.as_ref()));
                self.note(mdt, "open", on);
                let fid = if name.is_empty() { on } else { asked.rec_reint.fid2 };
                let is_new = !name.is_empty() && self.add(on, &name, fid, FILE)?;
                let mut reply = opened(fid, 5, is_new, Bytes::new());
                if name.is_empty() {
                    let (body, layout) = self.body(fid, DIRECTORY);
                    let lock = reply.dlm_rep.map(|it| LdlmReply { handle: LockHandle(0), ..it });
                    let mdt_body = Some(body);
                    reply =
                        LdlmIntentOpenReply { dlm_rep: lock, mdt_body, mdt_md: layout, ..reply };
                } else {
                    let lock = self.grant(fid, &asked.dlm_req, WHOLE);
                    let policy_res1 = reply.dlm_rep.map(|it| it.policy_res1).unwrap_or_default();
                    reply.dlm_rep = Some(LdlmReply { policy_res1, ..lock });
                }
                reply.into()
            }
            Request::MdsGetxattr(asked) => self.former(mdt, asked)?.into(),
            Request::MdsReintMigrate(asked)
                if self.is_there_already && asked.rec_reint.bias != Bias::MIGRATE_NSONLY =>
            {
                return Err(Errno::EALREADY);
            }
            Request::MdsReintMigrate(_) => {
                self.moves.push((mdt, request.clone()));
                MdsReintMigrateReply::default().into()
            }
            Request::MdsReintSetxattr(_) => {
                self.moves.push((mdt, request.clone()));
                MdsReintSetxattrReply::default().into()
            }
            Request::MdsReintCreate(asked)
                if asked.rec_reint.bias == Bias::NONE
                    && !asked.eadata.is_empty()
                    && !asked.rec_reint.flags().contains(MdsOpenFlags::DEFAULT_LMV) =>
            {
                self.moves.push((mdt, request.clone()));
                let mdt_body = Some(body(self.master, DIRECTORY));
                MdsReintCreateReply { mdt_body, ..Default::default() }.into()
            }
            Request::MdsReintCreate(asked) => {
                let (on, record) = (asked.rec_reint.fid1, &asked.rec_reint);
                let is_default = record.flags().contains(MdsOpenFlags::DEFAULT_LMV);
                assert!(is_on(record.fid2, mdt));
                assert_eq!(is_default, !asked.eadata.is_empty());
                self.made.push((mdt, is_default));
                if !is_default && on != Fid::ROOT {
                    self.note(mdt, "create", on);
                }
                self.add(on, &text_of(asked.name.as_ref()), record.fid2, record.mode)?;
                let mdt_body = Some(body(record.fid2, record.mode));
                MdsReintCreateReply { mdt_body, ..Default::default() }.into()
            }
            Request::MdsReintCreateSym(asked) => {
                let (on, record) = (asked.rec_reint.fid1, &asked.rec_reint);
                self.note(mdt, "create", on);
                self.add(on, &text_of(asked.name.as_ref()), record.fid2, record.mode)?;
                let mdt_body = Some(body(record.fid2, record.mode));
                MdsReintCreateSymReply { mdt_body, ..Default::default() }.into()
            }
            Request::MdsReintLink(asked) => {
                let on = asked.rec_reint.fid2;
                self.note(mdt, "link", on);
                self.add(on, &text_of(asked.name.as_ref()), asked.rec_reint.fid1, FILE)?;
                MdsReintLinkReply::default().into()
            }
            Request::MdsReintUnlink(asked) => {
                let (on, name) = (asked.rec_reint.fid1, text_of(asked.name.as_ref()));
                // The MDT of the inode does it.
                self.asked.push((mdt, "unlink".to_owned(), on));
                self.names(on, &name)?.remove(&name).ok_or(Errno::ENOENT)?;
                MdsReintUnlinkReply::default().into()
            }
            Request::MdsReintRename(asked) => {
                let (from, to) = (asked.rec_reint.fid1, asked.rec_reint.fid2);
                self.note(mdt, "rename", to);
                let (old, new) = (text_of(asked.name.as_ref()), text_of(asked.symtgt.as_ref()));
                self.names(to, &new)?;
                let (hash, fid, mode) =
                    self.names(from, &old)?.remove(&old).ok_or(Errno::ENOENT)?;
                self.names(to, &new)?.insert(new, (hash, fid, mode));
                let mdt_body = Some(MdtBody::default());
                MdsReintRenameReply { mdt_body, ..Default::default() }.into()
            }
            Request::MdsReintSetattr(asked) => {
                self.note(mdt, "setattr", asked.rec_reint.fid);
                let mdt_body = Some(body(asked.rec_reint.fid, DIRECTORY));
                MdsReintSetattrReply { mdt_body, ..Default::default() }.into()
            }
            Request::LdlmEnqueue(asked) => {
                let on = asked.dlm_req.desc.resource.name.fid();
                self.note(mdt, "lock", on);
                if self.grants_no_names {
                    return Err(Errno::ENOENT);
                }
                let dlm_rep = Some(self.grant(on, &asked.dlm_req, InodeBits::UPDATE));
                LdlmEnqueueReply { dlm_rep, ..Default::default() }.into()
            }
            Request::MdsReadpage(asked) => {
                let (on, from) = (asked.mdt_body.fid1, asked.mdt_body.size);
                self.note(mdt, "read", on);
                if self.gone.contains(&on) {
                    return Err(Errno::ENOENT);
                }
                let pages = vec![self.read(on, from)];
                self.move_behind(on);
                return Ok((MdsReadpageReply::default().into(), pages));
            }
            Request::MdsStatfs(_) => {
                self.asked.push((mdt, "space".to_owned(), Fid::ZERO));
                let stat =
                    ObdStatfs { bavail: 1000, ffree: 1000, bsize: 4096, ..ObdStatfs::default() };
                MdsStatfsReply { obd_statfs: Some(stat), ..Default::default() }.into()
            }
            Request::MdsClose(_) => MdsCloseReply::default().into(),
            other => panic!("not expected: {:?}", other.kind()),
        };
        Ok((reply, Vec::new()))
    }

    fn read(&self, directory: Fid, from: u64) -> Bytes {
        let mut entries = vec![
            WireEntry::new(directory, 1, Bytes::from_static(b"."), 0o040_000),
            WireEntry::new(MASTER, 2, Bytes::from_static(b".."), 0o040_000),
        ];
        let mut names: Vec<_> = self.directories[&directory].iter().collect();
        names.sort_by_key(|(_, (hash, ..))| *hash);
        entries.extend(names.into_iter().map(|(name, (hash, fid, mode))| {
            WireEntry::new(*fid, *hash, Bytes::from(name.clone()), (mode & 0o170_000) as u16)
        }));
        entries.retain(|entry| entry.hash >= from);
        let rest = entries.split_off(entries.len().min(self.page));
        let hash_end = rest.first().map_or(HASH_END, |entry| entry.hash);
        DirPage { header: DirPageHeader { hash_end, ..Default::default() }, entries }.encode()
    }
}

type Answered = (Reply, Vec<Bytes>);

fn is_on(fid: Fid, mdt: u32) -> bool {
    let of_second = super_range(1).contains(fid.seq);
    of_second == (mdt == 1)
}

/// A refusal of an intent.
fn refused(errno: Errno) -> LdlmIntentGetattrReply {
    let status = u64::from(errno.status().cast_unsigned());
    let dlm_rep = Some(LdlmReply { policy_res2: status, ..LdlmReply::default() });
    LdlmIntentGetattrReply { dlm_rep, ..Default::default() }
}

struct Bench {
    fixture: Fixture,
    second: AnotherMdt,
    cluster: Arc<Mutex<Cluster>>,
}

impl Bench {
    fn new() -> Self {
        let fixture = Fixture::new();
        let second = fixture.add_mdt();
        let cluster = Arc::new(Mutex::new(Cluster::new()));
        for (index, mdt) in [(0, &fixture.mdt), (1, &second.mdt)] {
            let (cluster, source) = (Arc::clone(&cluster), Arc::clone(&mdt.source));
            mdt.transno.store(1, Ordering::Relaxed);
            mdt.serve(move |request| {
                let source = source.lock().clone();
                match cluster.lock().answer(index, request, &source) {
                    Ok((reply, pages)) => (Ok(reply), pages),
                    Err(errno) => (Err(errno), Vec::new()),
                }
            });
        }
        Self { fixture, second, cluster }
    }

    /// With MDTs that leave a client's locks on directories that it changes.
    fn with_own_names() -> Self {
        let bench = Self::new();
        for mdt in [&bench.fixture.mdt, &bench.second.mdt] {
            mdt.own_names.store(true, Ordering::Relaxed);
        }
        bench
    }

    fn directory(&self) -> NodeId {
        let node = entry(look_up(&self.fixture, NodeId::ROOT, "d")).node;
        self.asked();
        node
    }

    fn look_up(&self, parent: NodeId, text: &str) -> Result<Lookup, Errno> {
        let text = name(text);
        self.run(move |files, who| async move { files.lookup(&who, parent, &text).await })
    }

    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl FnOnce(super::FileSystem, Credentials) -> F,
    ) -> T {
        self.fixture.world.run(call(self.fixture.files.clone(), Fixture::root()))
    }

    fn asked(&self) -> Vec<(u32, String, Fid)> {
        std::mem::take(&mut self.cluster.lock().asked)
    }

    /// On which MDTs directories were made, and whether by a default; other requests stay.
    fn made(&self) -> Vec<(u32, bool)> {
        std::mem::take(&mut self.cluster.lock().made)
    }

    fn name_in(&self, stripe: usize, number: usize) -> String {
        self.cluster.lock().name_in(STRIPES[stripe], number)
    }

    /// Puts a file there as another client does.
    fn put(&self, name: &str, fid: Fid) {
        let mut cluster = self.cluster.lock();
        let stripe = cluster.stripe_of(name);
        cluster.add(stripe, name, fid, FILE).expect("it belongs there");
    }

    fn make_file(&self, node: NodeId, text: &str) {
        let text = name(text);
        self.run(move |files, who| async move {
            let flags = OpenFlags(1);
            let (_, file) = files.open_create(&who, node, &text, 0o644, flags).await?;
            files.release(file.handle, None).await
        })
        .expect("made");
        self.fixture.world.settle();
    }

    /// Another client takes all locks on an inode.
    fn revoke(&self, fid: Fid) {
        let granted: Vec<_> = {
            let mut cluster = self.cluster.lock();
            let (of_it, rest) = std::mem::take(&mut cluster.granted)
                .into_iter()
                .partition::<Vec<_>, _>(|(on, ..)| *on == fid);
            cluster.granted = rest;
            of_it
        };
        let locks = if is_on(fid, 1) { &self.second.locks } else { &self.fixture.locks };
        for (_, asked, lock) in granted {
            // It may have gone with a change of this client.
            _ = locks.on_blocking(&blocking(&asked, &lock));
        }
        self.fixture.world.settle();
    }

    fn open(&self, node: NodeId) -> FileHandle {
        let flags = OpenFlags(OpenFlags::DIRECTORY);
        let opened = self.run(move |files, who| async move { files.open(&who, node, flags).await });
        opened.expect("opened").handle
    }

    fn list(&self, handle: FileHandle, room: usize) -> Vec<(String, Fid, u64)> {
        self.run(move |files, _| async move {
            let (mut names, mut from) = (Vec::new(), DirCookie(0));
            loop {
                let some = files.readdir(handle, from, room).await.expect("a listing");
                let Some(last) = some.last() else { return names };
                from = last.next;
                let shown = |it: &super::DirEntry| {
                    (String::from_utf8_lossy(&it.name).into_owned(), it.fid, it.next.0)
                };
                names.extend(some.iter().map(shown));
            }
        })
    }
}

fn kinds(asked: &[(u32, String, Fid)]) -> Vec<(u32, &str, Fid)> {
    asked.iter().map(|(mdt, what, on)| (*mdt, what.as_str(), *on)).collect()
}

#[test]
fn each_request_about_a_name_goes_to_its_stripe() {
    let bench = Bench::new();
    let node = bench.directory();
    let (one, other) = (bench.name_in(0, 0), bench.name_in(1, 0));
    bench.make_file(node, &one);
    bench.make_file(node, &other);
    assert_eq!(kinds(&bench.asked()), [(1, "open", STRIPES[0]), (0, "open", STRIPES[1])]);
    let file = entry(bench.look_up(node, &one));
    assert!(super_range(1).contains(file.attributes.fid.seq), "made where its name is");
    assert!(file.keep.entry);
    assert_eq!(bench.asked(), [], "the open's locks cover it");

    let sub = name(&bench.name_in(2, 0));
    bench
        .run(move |files, who| async move {
            files.make_node(&who, node, &sub, 0o755, NewNode::Directory).await
        })
        .expect("made");
    let link = name(&bench.name_in(1, 1));
    bench
        .run(move |files, who| async move { files.link(&who, file.node, node, &link).await })
        .expect("linked");
    let asked = bench.asked();
    let asked: Vec<_> =
        kinds(&asked).into_iter().filter(|(_, what, _)| *what != "getattr").collect();
    assert_eq!(asked, [(1, "create", STRIPES[2]), (0, "link", STRIPES[1])]);

    let (from, to) = (name(&one), name(&bench.name_in(1, 2)));
    let target = to.clone();
    bench
        .run(move |files, who| async move {
            files.rename(&who, (node, &from), (node, &target), RenameMode::Replace).await
        })
        .expect("moved");
    assert!(kinds(&bench.asked()).contains(&(0, "rename", STRIPES[1])));
    assert!(matches!(bench.look_up(node, &one), Ok(Lookup::Absent { .. })));
    assert_eq!(entry(bench.look_up(node, &to.to_string())).attributes.fid, file.attributes.fid);
    bench.asked();

    let gone = name(&other);
    bench
        .run(move |files, who| async move { files.unlink(&who, node, &gone).await })
        .expect("gone");
    assert_eq!(kinds(&bench.asked()), [(0, "unlink", STRIPES[1])]);
}

#[test]
fn a_name_whose_inode_is_on_another_mdt_than_its_stripe_is_asked_of_both() {
    let bench = Bench::new();
    let node = bench.directory();
    let text = bench.name_in(0, 0);
    let file = Fid::new(0x2_0000_0401, 20);
    bench.put(&text, file);
    assert_eq!(entry(bench.look_up(node, &text)).attributes.fid, file);
    assert_eq!(kinds(&bench.asked()), [(1, "getattr", STRIPES[0]), (0, "getattr", file)]);
}

#[test]
fn a_layout_counts_while_the_masters_lock_does() {
    let bench = Bench::new();
    let node = bench.directory();
    bench.revoke(MASTER);
    let text = bench.name_in(1, 0);
    bench.make_file(node, &text);
    let asked = bench.asked();
    assert_eq!(kinds(&asked)[..2], [(0, "getattr", MASTER), (0, "open", STRIPES[1])]);
    bench.make_file(node, &bench.name_in(1, 1));
    assert_eq!(kinds(&bench.asked()), [(0, "open", STRIPES[1])], "a lock came with it");
}

#[test]
fn what_a_stripe_refuses_is_asked_again_by_the_layout_as_it_is_now() {
    let bench = Bench::new();
    let node = bench.directory();
    // Another client has striped it anew, and this one was not asked for its lock yet.
    let other = layout_of(LmvHash::FNV_1A_64, &[STRIPES[1], STRIPES[0]]);
    let text = {
        let mut cluster = bench.cluster.lock();
        let names: Vec<_> = (0..20).map(|number| cluster.name_in(STRIPES[0], number)).collect();
        cluster.layout = other;
        let moved = |name: &String| cluster.stripe_of(name) == STRIPES[1];
        names.into_iter().find(moved).expect("one that is elsewhere now")
    };
    bench.make_file(node, &text);
    let asked = bench.asked();
    assert_eq!(kinds(&asked).last(), Some(&(0, "open", STRIPES[1])));
    assert!(kinds(&asked).contains(&(0, "getattr", MASTER)));

    bench.cluster.lock().gone.extend(STRIPES);
    let refused = bench.look_up(node, &bench.name_in(0, 1));
    assert_eq!(refused.err(), Some(Errno::ESTALE), "not for ever");
    assert!(bench.asked().len() < 20);
}

#[test]
fn what_is_in_a_directory_of_a_hash_that_is_unknown_is_used_and_nothing_made() {
    for hash in [LmvHash(77), LmvHash(LmvHash::CRUSH.0 | LmvHash::BAD_TYPE)] {
        let bench = Bench::new();
        let there = bench.name_in(1, 0);
        bench.put(&there, Fid::new(0x2_0000_0401, 20));
        bench.cluster.lock().layout = layout_of(hash, &STRIPES);
        let node = bench.directory();
        let listed = bench.list(bench.open(node), 100);
        assert!(listed.iter().any(|(name, ..)| *name == there));
        assert_eq!(entry(bench.look_up(node, &there)).attributes.fid.oid, 20);
        assert!(matches!(bench.look_up(node, "absent"), Ok(Lookup::Absent { .. })));
        let (new, gone) = (name("new"), name(&there));
        let made = bench.run(move |files, who| async move {
            files.make_node(&who, node, &new, 0o755, NewNode::Directory).await.map(drop)
        });
        assert_eq!(made, Err(Errno::EBADF));
        bench
            .run(move |files, who| async move { files.unlink(&who, node, &gone).await })
            .expect("removed");
    }
}

#[test]
fn names_known_to_be_absent_go_with_the_lock_of_their_stripe() {
    let bench = Bench::with_own_names();
    let node = bench.directory();
    bench.list(bench.open(node), 100);
    bench.asked();
    let (one, other) = (bench.name_in(0, 0), bench.name_in(1, 0));
    for text in [&one, &other] {
        assert!(matches!(bench.look_up(node, text), Ok(Lookup::Absent { keep: true })));
    }
    assert_eq!(bench.asked(), [], "all names of all stripes are known");
    // An own change leaves the lock.
    bench.make_file(node, &bench.name_in(0, 1));
    bench.asked();
    assert!(matches!(bench.look_up(node, &one), Ok(Lookup::Absent { .. })));
    assert_eq!(bench.asked(), []);

    bench.fixture.watcher.take();
    bench.put(&one, Fid::new(0x2_4000_0401, 30));
    bench.revoke(STRIPES[0]);
    let stale = format!("children {} {one}", node.0);
    assert!(bench.fixture.watcher.take().contains(&stale), "the kernel knows the master alone");
    entry(bench.look_up(node, &one));
    assert_eq!(kinds(&bench.asked()), [(1, "getattr", STRIPES[0])]);
    assert!(matches!(bench.look_up(node, &other), Ok(Lookup::Absent { .. })));
    assert_eq!(bench.asked(), [], "the other stripe's lock is there");
}

#[test]
fn a_listing_is_merged_by_hash_and_goes_on_from_any_position() {
    for (page, room) in [(3, 2), (5, 7), (50, 100)] {
        let bench = Bench::new();
        bench.cluster.lock().page = page;
        let mut expected = BTreeSet::new();
        for at in 0..60 {
            let text = format!("f{at}");
            let fid = Fid::new(0x2_0000_0401, 100 + at);
            bench.put(&text, fid);
            expected.insert((text, fid));
        }
        let node = bench.directory();
        let handle = bench.open(node);
        let listed = bench.list(handle, room);
        let dots: Vec<_> = listed[..2].iter().map(|(name, fid, _)| (&name[..], *fid)).collect();
        assert_eq!(dots, [(".", MASTER), ("..", Fid::ROOT)]);
        let names: Vec<_> = listed[2..].iter().map(|(name, fid, _)| (name.clone(), *fid)).collect();
        assert_eq!(names.len(), expected.len(), "each once");
        assert_eq!(names.iter().cloned().collect::<BTreeSet<_>>(), expected);
        // Each stripe's hashes are the same, so most are there three times.
        for at in [0, 1, 2, 17, 40] {
            let from = DirCookie(listed[at].2);
            let rest = bench
                .run(move |files, _| async move { files.readdir(handle, from, 1).await })
                .expect("a listing");
            assert_eq!(rest[0].name[..], *listed[at + 1].0.as_bytes(), "{page} {room} {at}");
        }
    }
}

#[test]
fn stripes_are_read_at_once_and_not_again_while_their_locks_are_there() {
    let bench = Bench::new();
    for at in 0..30 {
        bench.put(&format!("f{at}"), Fid::new(0x2_0000_0401, 100 + at));
    }
    let node = bench.directory();
    let handle = bench.open(node);
    bench.asked();
    let listed = bench.list(handle, 100);
    let asked = bench.asked();
    let reads = kinds(&asked).iter().filter(|(_, what, _)| *what == "read").count();
    let locks = kinds(&asked).iter().filter(|(_, what, _)| *what == "lock").count();
    assert_eq!((reads, locks, asked.len()), (3, 3, 6));
    assert_eq!(bench.list(bench.open(node), 100), listed);
    assert_eq!(kinds(&bench.asked()).iter().filter(|(_, what, _)| *what == "read").count(), 0);
    // One of them changes.
    bench.revoke(STRIPES[1]);
    bench.list(bench.open(node), 100);
    let asked = bench.asked();
    let read: Vec<_> = kinds(&asked).into_iter().filter(|(_, what, _)| *what == "read").collect();
    assert_eq!(read, [(0, "read", STRIPES[1])]);
}

#[test]
fn a_directory_that_is_removed_while_it_is_open_lists_nothing() {
    let bench = Bench::new();
    let node = bench.directory();
    let handle = bench.open(node);
    bench.cluster.lock().gone.extend(STRIPES);
    bench.cluster.lock().gone.insert(MASTER);
    assert_eq!(bench.list(handle, 100), []);
}

/// An MDT keeps what it knows as open, with its layout, and without its stripes.
#[test]
fn a_directory_that_is_removed_while_its_mdt_knows_it_as_open_has_no_links_and_no_names() {
    let bench = Bench::new();
    let node = bench.directory();
    let handle = bench.open(node);
    bench.revoke(MASTER);
    bench.cluster.lock().gone.extend(STRIPES);
    bench.cluster.lock().stats.insert(MASTER, (0, 4096, 50));
    assert_eq!(bench.list(handle, 100), []);
    let stat = bench.run(move |files, who| async move { files.getattr(&who, node).await });
    assert_eq!(stat.expect("stat").attributes.nlink, 0);
    assert!(bench.asked().len() < 12);
}

#[test]
fn a_listing_asks_nothing_of_the_directory_above_and_says_which_it_is() {
    let bench = Bench::new();
    let node = bench.directory();
    let handle = bench.open(node);
    bench.revoke(MASTER);
    let listed = bench.list(handle, 100);
    assert_eq!((&listed[1].0[..], listed[1].1), ("..", Fid::ROOT));
}

#[test]
fn what_is_kept_of_stripes_goes_with_their_locks_after_a_refusal_too() {
    let bench = Bench::new();
    let node = bench.directory();
    let stat = |bench: &Bench| {
        bench.run(move |files, who| async move { files.getattr(&who, node).await }).expect("stat")
    };
    assert!(stat(&bench).keep);
    bench.cluster.lock().gone.insert(STRIPES[0]);
    assert_eq!(bench.look_up(node, &bench.name_in(0, 0)).err(), Some(Errno::ESTALE));
    bench.cluster.lock().gone.clear();
    bench.fixture.watcher.take();
    bench.revoke(STRIPES[1]);
    let stale = format!("inode {} Attributes", node.0);
    assert_eq!(bench.fixture.watcher.take(), std::slice::from_ref(&stale));

    // Where it lies in other stripes, those of before say nothing any more.
    stat(&bench);
    bench.fixture.watcher.take();
    bench.cluster.lock().layout = layout_of(LmvHash::FNV_1A_64, &[STRIPES[1], STRIPES[2]]);
    bench.revoke(MASTER);
    stat(&bench);
    bench.fixture.world.settle();
    assert!(bench.fixture.watcher.take().contains(&stale));
}

#[test]
fn a_listing_without_a_stripe_that_was_lost_ends_with_an_error() {
    let bench = Bench::new();
    let there = bench.name_in(1, 0);
    bench.put(&there, Fid::new(0x2_0000_0401, 20));
    bench.cluster.lock().layout = layout_of(LmvHash::FNV_1A_64, &[STRIPES[1], Fid::ZERO]);
    let node = bench.directory();
    let handle = bench.open(node);
    let read =
        |from| bench.run(move |files, _| async move { files.readdir(handle, from, 100).await });
    let names = read(DirCookie(0)).expect("what is there");
    assert_eq!(names.last().map(|it| &it.name[..]), Some(there.as_bytes()));
    assert_eq!(read(names[names.len() - 1].next), Err(Errno::EIO));
}

#[test]
fn attributes_are_merged_over_stripes_and_kept_under_the_lock_of_each() {
    let bench = Bench::new();
    {
        let mut cluster = bench.cluster.lock();
        cluster.stats.insert(MASTER, (2, 4096, 50));
        cluster.stats.insert(STRIPES[0], (4, 4096, 60));
        cluster.stats.insert(STRIPES[1], (2, 8192, 300));
        cluster.stats.insert(STRIPES[2], (3, 4096, 70));
    }
    let node = bench.directory();
    let stat = |bench: &Bench| {
        bench.run(move |files, who| async move { files.getattr(&who, node).await }).expect("stat")
    };
    let known = stat(&bench);
    let Stat { nlink, size, blocks, mtime } = Stat::of(&known);
    assert_eq!((nlink, size, blocks, mtime), (5, 16384, 32, 300));
    assert!(known.keep);
    assert_eq!(
        kinds(&bench.asked()),
        [(1, "getattr", STRIPES[0]), (0, "getattr", STRIPES[1]), (1, "getattr", STRIPES[2])]
    );
    stat(&bench);
    assert_eq!(bench.asked(), []);

    bench.fixture.watcher.take();
    bench.revoke(STRIPES[1]);
    let stale = format!("inode {} Attributes", node.0);
    assert_eq!(bench.fixture.watcher.take(), [stale]);
    bench.cluster.lock().stats.insert(STRIPES[1], (3, 4096, 400));
    assert_eq!(Stat::of(&stat(&bench)), Stat { nlink: 6, size: 12288, blocks: 24, mtime: 400 });
    assert_eq!(kinds(&bench.asked()), [(0, "getattr", STRIPES[1])]);
    let stripe = bench.fixture.files.0.inodes.pin(STRIPES[1]);
    assert_ne!(stripe.node(), node);

    // The MDT changes all of them.
    let changes = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    bench
        .run(move |files, who| async move { files.setattr(&who, node, None, changes).await })
        .expect("changed");
    assert_eq!(kinds(&bench.asked())[0], (0, "setattr", MASTER));
    stat(&bench);
    assert_eq!(bench.asked().len(), 4, "the master and each stripe");
}

/// What is merged.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    nlink: u32,
    size: u64,
    blocks: u64,
    mtime: i64,
}

impl Stat {
    fn of(stat: &super::Stat) -> Self {
        let it = &stat.attributes;
        Self { nlink: it.nlink, size: it.size, blocks: it.blocks, mtime: it.mtime.seconds }
    }
}

#[test]
fn many_names_are_asked_in_one_batch_for_each_mdt() {
    let bench = Bench::new();
    for mdt in [&bench.fixture.mdt, &bench.second.mdt] {
        mdt.takes_batches.store(true, Ordering::Relaxed);
    }
    let mut names = Vec::new();
    for (at, stripe) in [0, 1, 2, 0, 1, 2].into_iter().enumerate() {
        let text = bench.name_in(stripe, at);
        bench.put(
            &text,
            Fid::new(if stripe == 1 { 0x2_0000_0401 } else { 0x2_4000_0401 }, 40 + at as u32),
        );
        names.push(text);
    }
    let node = bench.directory();
    let pin = bench.fixture.files.0.inodes.pin_node(node).expect("known");
    let asked: Vec<_> =
        names.iter().map(|text| crate::meta::BatchedName { name: name(text), fid: None }).collect();
    let found = bench
        .run(move |files, who| async move { files.0.meta.lookup_batch(&who, &pin, &asked).await });
    let oids: Vec<_> =
        found.iter().map(|it| it.as_ref().map(|it| it.as_ref().map(|pin| pin.fid.oid))).collect();
    assert_eq!(oids, [40, 41, 42, 43, 44, 45].map(|oid| Ok(Some(oid))));
    let batches: Vec<_> =
        bench.asked().into_iter().filter(|(_, what, _)| what.starts_with("batch")).collect();
    let batches: Vec<_> = batches.iter().map(|(mdt, what, _)| (*mdt, &what[..])).collect();
    assert_eq!(batches, [(0, "batch of 2"), (1, "batch of 4")]);
    entry(bench.look_up(node, &names[0]));
    assert_eq!(bench.asked(), [], "under locks as a lookup's");
}
