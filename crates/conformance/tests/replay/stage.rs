//! What was there before a capture: the files and directories that it names and does not make.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sheen_types::{Fid, HashMap};
use sheen_wire::dir::{DirPage, PAGE_SIZE};
use sheen_wire::ldlm::{Disposition, LockType};
use sheen_wire::lmv::{LmvEa, LmvUserMd};
use sheen_wire::lov::LovEa;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{LdlmIntentGetattrReply, Reply, Request};
use sheen_wire::ost::{OstId, OstLvb};
use sheen_wire::text::Text;
use sheen_wire::{ByteOrder, Reader, Wire};

use crate::script::{Exchange, Script};

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// A file or directory from before the capture.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) parent: Fid,
    pub(crate) fid: Fid,
    pub(crate) name: Text,
    pub(crate) mode: u32,
    pub(crate) time: i64,
    /// Its layout, if an answer has it.
    pub(crate) layout: Option<Bytes>,
    /// The stripes of a directory, if an answer has them.
    pub(crate) stripes: Option<Bytes>,
    /// What a symbolic link points to.
    pub(crate) target: Option<Bytes>,
}

/// What an object from before the capture held, as far as the capture shows it.
#[derive(Default)]
pub(crate) struct Contents {
    /// Bytes.
    pub(crate) size: u64,
    /// What was read, by offset.
    pub(crate) data: Vec<(u64, Bytes)>,
}

/// Whether a mode is that of a directory.
pub(crate) fn is_directory(mode: u32) -> bool {
    mode & TYPE_MASK == DIRECTORY
}

impl Entry {
    pub(crate) fn is_directory(&self) -> bool {
        is_directory(self.mode)
    }

    pub(crate) fn is_symlink(&self) -> bool {
        self.mode & TYPE_MASK == SYMLINK
    }

    fn can_be_made(&self) -> bool {
        [DIRECTORY, REGULAR, SYMLINK].contains(&(self.mode & TYPE_MASK))
    }
}

/// What a script names before it makes it, each behind its parent. A directory whose name is in no
/// answer is put into the root.
pub(crate) fn entries(script: &Script) -> Vec<Entry> {
    let striped: BTreeMap<_, _> = script.exchanges.iter().rev().filter_map(stripes_of).collect();
    // By what they are stripes of.
    let mut stripes: BTreeMap<Fid, Fid> = striped.iter().flat_map(with_stripes).collect();
    let split = split_directories(script, &stripes);
    stripes.retain(|stripe, _| split.get(stripe) != Some(stripe));
    let batched = script.exchanges.iter().rev().flat_map(batched);
    let batched: Vec<_> = batched.filter_map(|answer| answer.mdt_body).collect();
    let bodies = batched.iter().chain(script.exchanges.iter().rev().filter_map(body_of));
    let bodies = bodies.filter(|body| body.valid.contains(Valid::MODE | Valid::TYPE));
    let bodies: BTreeMap<_, _> = bodies.map(|body| (body.fid1, body)).collect();
    let mut made = BTreeSet::from([Fid::ROOT]);
    made.extend(stripes.keys());
    let mut found: BTreeMap<Fid, Entry> = BTreeMap::new();
    found.extend(mounted(script).into_iter().map(|entry| (entry.fid, entry)));
    for exchange in &script.exchanges {
        made.extend(new_fid(exchange));
        for mut entry in named_entry(exchange).into_iter().chain(listed(exchange)) {
            // The MDT of a name says no more than where the inode is.
            if let (0, Some(body)) = (entry.mode, bodies.get(&entry.fid)) {
                entry.mode = body.mode;
            }
            entry.parent = split.get(&entry.parent).copied().unwrap_or(entry.parent);
            if !made.contains(&entry.fid) && entry.can_be_made() {
                found.entry(entry.fid).or_insert(entry);
            }
        }
    }
    let above: BTreeMap<_, _> = script.exchanges.iter().flat_map(dot_dots).collect();
    let parents = script.exchanges.iter().filter_map(parent_of).chain(above.values().copied());
    let parents: Vec<_> = parents.collect();
    let parents = parents.into_iter().chain(found.values().map(|it| it.parent)).collect::<Vec<_>>();
    for fid in parents {
        if !fid.is_zero() && !made.contains(&fid) {
            let name = Text::from(format!("{fid}").as_str());
            let mut said = script.exchanges.iter().filter_map(body_of);
            let body = said.find(|body| body.fid1 == fid && body.mode & TYPE_MASK == DIRECTORY);
            let (mode, time) = body.map_or((DIRECTORY | 0o755, 1), |body| (body.mode, body.ctime));
            let parent = above.get(&fid).copied().unwrap_or(Fid::ROOT);
            found.entry(fid).or_insert(Entry {
                parent,
                fid,
                name,
                mode,
                time,
                layout: None,
                stripes: None,
                target: None,
            });
        }
    }
    let mut sorted = Vec::new();
    while !found.is_empty() {
        let master = |parent: Fid| stripes.get(&parent).copied().unwrap_or(parent);
        let is_next = |entry: &Entry| !found.contains_key(&master(entry.parent));
        let next: Vec<_> = found.values().filter(|it| is_next(it)).cloned().collect();
        if next.is_empty() {
            break;
        }
        next.iter().for_each(|entry| drop(found.remove(&entry.fid)));
        sorted.extend(next);
    }
    let layouts: BTreeMap<_, _> = script.exchanges.iter().rev().flat_map(layouts_of).collect();
    let targets: BTreeMap<_, _> = script.exchanges.iter().filter_map(target_of).collect();
    for entry in &mut sorted {
        entry.layout = layouts.get(&entry.fid).cloned();
        entry.stripes = striped.get(&entry.fid).cloned();
        entry.target = targets.get(&entry.fid).cloned();
        if let Some(body) = bodies.get(&entry.fid) {
            (entry.mode, entry.time) = (body.mode, body.ctime);
        }
    }
    sorted
}

/// Directories from before the capture that are split in it, by the stripes that they have then.
fn split_directories(script: &Script, stripes: &BTreeMap<Fid, Fid>) -> BTreeMap<Fid, Fid> {
    let made: BTreeSet<_> = script.exchanges.iter().filter_map(new_fid).collect();
    let named = script.exchanges.iter().filter_map(named_entry).map(|entry| entry.fid);
    // A split directory is a stripe of the new master.
    let is_split = |fid: &Fid| {
        !made.contains(fid) && stripes.get(fid).is_some_and(|master| made.contains(master))
    };
    let split: BTreeSet<_> = named.filter(is_split).collect();
    let with_all = |directory: Fid| {
        let master = stripes.get(&directory);
        let all = stripes.iter().filter(move |(_, other)| Some(*other) == master);
        all.map(move |(stripe, _)| (*stripe, directory))
    };
    split.into_iter().flat_map(with_all).collect()
}

/// The answers of a batch.
fn batched(exchange: &Exchange) -> Vec<LdlmIntentGetattrReply> {
    match exchange.reply.as_ref().map(|(reply, _)| &reply.typed) {
        Some(Reply::MdsBatch(answer)) => sheen_conformance::attributes(&answer.batch_update_reply),
        _ => Vec::new(),
    }
}

/// The layouts of files in an answer.
fn layouts_of(exchange: &Exchange) -> Vec<(Fid, Bytes)> {
    let Some((reply, _)) = &exchange.reply else { return Vec::new() };
    let fid = |body: &Option<MdtBody>| body.as_ref().map(|body| body.fid1);
    let answer = match (&exchange.request.typed, &reply.typed) {
        (_, Reply::LdlmIntentGetattr(answer)) => {
            vec![(fid(&answer.mdt_body), answer.mdt_md.clone())]
        }
        (_, Reply::LdlmIntentOpen(answer)) => vec![(fid(&answer.mdt_body), answer.mdt_md.clone())],
        (Request::LdlmIntentLayout(asked), Reply::LdlmIntentLayout(answer)) => {
            vec![(Some(asked.dlm_req.desc.resource.name.fid()), answer.dlm_lvb.clone())]
        }
        _ => {
            let answer = batched(exchange).into_iter();
            answer.map(|answer| (fid(&answer.mdt_body), answer.mdt_md)).collect()
        }
    };
    let is_plain = |layout: &Bytes| matches!(LovEa::decode(layout), Ok(LovEa::Plain(_)));
    let plain = answer.into_iter().filter(|(_, layout)| is_plain(layout));
    plain.filter_map(|(fid, layout)| Some((fid?, layout))).collect()
}

/// The stripes of a directory in an answer.
fn stripes_of(exchange: &Exchange) -> Option<(Fid, Bytes)> {
    let (body, layout) = match &exchange.reply.as_ref()?.0.typed {
        Reply::LdlmIntentGetattr(answer) => (answer.mdt_body.as_ref()?, &answer.mdt_md),
        Reply::LdlmIntentOpen(answer) => (answer.mdt_body.as_ref()?, &answer.mdt_md),
        Reply::MdsGetattr(answer) => (answer.mdt_body.as_ref()?, &answer.mdt_md),
        _ => return None,
    };
    let is_striped =
        matches!(LmvEa::decode(layout), Ok(LmvEa::Stripes { fids, .. }) if !fids.is_empty());
    is_striped.then(|| (body.fid1, layout.clone()))
}

fn with_stripes((master, layout): (&Fid, &Bytes)) -> Vec<(Fid, Fid)> {
    match LmvEa::decode(layout) {
        Ok(LmvEa::Stripes { fids, .. }) => fids.into_iter().map(|it| (it, *master)).collect(),
        _ => Vec::new(),
    }
}

/// The default for directories that the root has by an answer.
pub(crate) fn default_of_root(script: &Script) -> Option<LmvUserMd> {
    let mut answers = script.exchanges.iter().filter_map(|it| Some(&it.reply.as_ref()?.0.typed));
    answers.find_map(|answer| {
        let (body, default) = match answer {
            Reply::LdlmIntentGetattr(answer) => (answer.mdt_body.as_ref()?, &answer.default_mdt_md),
            Reply::LdlmIntentOpen(answer) => (answer.mdt_body.as_ref()?, &answer.default_mdt_md),
            _ => return None,
        };
        match LmvEa::decode(default) {
            Ok(LmvEa::User { header, .. }) if body.fid1 == Fid::ROOT => Some(header),
            _ => None,
        }
    })
}

/// Directories on the way to the one that is mounted, from the root, which is not among them.
fn mounted(script: &Script) -> Vec<Entry> {
    let parents: BTreeMap<_, _> = script.exchanges.iter().flat_map(dot_dots).collect();
    let mut entries = Vec::new();
    for exchange in &script.exchanges {
        let (Request::MdsGetRoot(asked), Some((reply, _))) =
            (&exchange.request.typed, &exchange.reply)
        else {
            continue;
        };
        let Reply::MdsGetRoot(answer) = &reply.typed else { continue };
        let (Some(path), Some(body)) = (&asked.name, &answer.mdt_body) else { continue };
        let mut fid = body.fid1;
        let path = path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        for name in path.collect::<Vec<_>>().into_iter().rev() {
            let parent = parents.get(&fid).copied().unwrap_or(Fid::ROOT);
            let (mode, name) = (DIRECTORY | 0o755, Text::new(name));
            entries.push(Entry {
                parent,
                fid,
                name,
                mode,
                time: 1,
                layout: None,
                stripes: None,
                target: None,
            });
            fid = parent;
        }
    }
    entries
}

/// What listed directories say of their parents.
fn dot_dots(exchange: &Exchange) -> Vec<(Fid, Fid)> {
    let Request::MdsReadpage(asked) = &exchange.request.typed else { return Vec::new() };
    let starts = |data: &Bytes| (0..data.len() / PAGE_SIZE).map(|page| page * PAGE_SIZE);
    let pages = exchange.bulk.iter().flat_map(|(_, data)| {
        starts(data).filter_map(|at| DirPage::decode(&data.slice(at..at + PAGE_SIZE)).ok())
    });
    let mut found = Vec::new();
    for page in pages {
        let dot_dot = page.entries.iter().filter(|entry| &entry.name[..] == b"..");
        found.extend(dot_dot.map(|entry| (asked.mdt_body.fid1, entry.fid)));
    }
    found
}

/// What a symbolic link points to by an answer.
fn target_of(exchange: &Exchange) -> Option<(Fid, Bytes)> {
    let Reply::MdsGetattr(answer) = &exchange.reply.as_ref()?.0.typed else { return None };
    let body = answer.mdt_body.as_ref()?;
    body.valid.contains(Valid::LINKNAME).then(|| (body.fid1, answer.mdt_md.clone()))
}

/// What the objects held that are read or asked about before they are changed, by the two words of
/// their names.
pub(crate) fn contents(script: &Script) -> HashMap<(u64, u64), Contents> {
    let mut contents: HashMap<_, Contents> = HashMap::default();
    let mut changed = BTreeSet::new();
    for exchange in &script.exchanges {
        let words = |oi: &OstId| (oi.word0, oi.word1);
        let answer = exchange.reply.as_ref().map(|(reply, _)| &reply.typed);
        match (&exchange.request.typed, answer) {
            (Request::OstWrite(it), _) => _ = changed.insert(words(&it.ost_body.oa.oi)),
            (Request::OstPunch(it), _) => _ = changed.insert(words(&it.ost_body.oa.oi)),
            (Request::OstFallocate(it), _) => _ = changed.insert(words(&it.ost_body.oa.oi)),
            (Request::OstRead(asked), Some(Reply::OstRead(answer))) => {
                let object = words(&asked.ost_body.oa.oi);
                if changed.contains(&object) {
                    continue;
                }
                let mut data: Vec<_> = exchange.bulk.iter().map(|(_, data)| &data[..]).collect();
                data.push(&answer.short_io);
                let (data, mut at) = (Bytes::from(data.concat()), 0);
                let found = contents.entry(object).or_default();
                for range in &asked.niobuf_remote {
                    let end = (at + range.len as usize).min(data.len());
                    found.data.push((range.offset, data.slice(at..end)));
                    at = end;
                }
            }
            (Request::LdlmEnqueue(asked), Some(Reply::LdlmEnqueue(answer))) => {
                let name = asked.dlm_req.desc.resource.name.0;
                let object = (name[0], name[1]);
                let value = OstLvb::decode(&mut Reader::new(&answer.dlm_lvb, ByteOrder::Little));
                if asked.dlm_req.desc.resource.kind == LockType::EXTENT
                    && !changed.contains(&object)
                    && let Ok(value) = value
                {
                    contents.entry(object).or_insert(Contents { size: value.size, data: vec![] });
                }
            }
            _ => {}
        }
    }
    contents
}

/// What an answer says of an inode.
fn body_of(exchange: &Exchange) -> Option<&MdtBody> {
    match &exchange.reply.as_ref()?.0.typed {
        Reply::LdlmIntentGetattr(answer) => answer.mdt_body.as_ref(),
        Reply::LdlmIntentOpen(answer) => answer.mdt_body.as_ref(),
        Reply::MdsGetattr(answer) => answer.mdt_body.as_ref(),
        _ => None,
    }
}

/// The FID that a request makes.
pub(crate) fn new_fid(exchange: &Exchange) -> Option<Fid> {
    match (&exchange.request.typed, exchange.reply.as_ref().map(|(reply, _)| &reply.typed)) {
        (Request::MdsReintCreate(create), _) => Some(create.rec_reint.fid2),
        (Request::MdsReintCreateSym(create), _) => Some(create.rec_reint.fid2),
        (Request::MdsReintMigrate(migrate), _) => Some(migrate.rec_reint.fid2),
        (Request::LdlmIntentOpen(open), Some(Reply::LdlmIntentOpen(answer))) => {
            let how = answer.dlm_rep.as_ref()?.policy_res1;
            how.contains(Disposition::OPEN_CREATE).then_some(open.rec_reint.fid2)
        }
        _ => None,
    }
}

/// What a lookup or open by name found.
fn named_entry(exchange: &Exchange) -> Option<Entry> {
    let (reply, _) = exchange.reply.as_ref()?;
    let entry = |parent: Fid, name: &Text, body: &MdtBody| Entry {
        parent,
        fid: body.fid1,
        name: name.clone(),
        mode: body.mode,
        time: body.ctime,
        layout: None,
        stripes: None,
        target: None,
    };
    let found = match (&exchange.request.typed, &reply.typed) {
        (Request::LdlmIntentGetattr(asked), Reply::LdlmIntentGetattr(answer)) => {
            entry(asked.mdt_body.fid1, asked.name.as_ref()?, answer.mdt_body.as_ref()?)
        }
        (Request::LdlmIntentOpen(asked), Reply::LdlmIntentOpen(answer)) => {
            entry(asked.rec_reint.fid1, asked.name.as_ref()?, answer.mdt_body.as_ref()?)
        }
        _ => return None,
    };
    (!found.name.as_bytes().is_empty() && found.parent != found.fid).then_some(found)
}

/// What a directory held when it was listed.
fn listed(exchange: &Exchange) -> Vec<Entry> {
    let Request::MdsReadpage(asked) = &exchange.request.typed else { return Vec::new() };
    let parent = asked.mdt_body.fid1;
    let mut entries = Vec::new();
    for (_, data) in &exchange.bulk {
        for at in (0..data.len() / PAGE_SIZE).map(|page| page * PAGE_SIZE) {
            let Ok(page) = DirPage::decode(&data.slice(at..at + PAGE_SIZE)) else { continue };
            entries.extend(page.entries.iter().filter_map(|entry| {
                let name = Text::new(&entry.name);
                let mode = u32::from(entry.kind?) | 0o644;
                let is_dot = [&b"."[..], b".."].contains(&&entry.name[..]);
                (!is_dot).then_some(Entry {
                    parent,
                    fid: entry.fid,
                    name,
                    mode,
                    time: 1,
                    layout: None,
                    stripes: None,
                    target: None,
                })
            }));
        }
    }
    entries
}

/// The directory that a request is about a name in.
fn parent_of(exchange: &Exchange) -> Option<Fid> {
    let is_named = |name: &Option<Text>| name.as_ref().is_some_and(|it| !it.as_bytes().is_empty());
    match &exchange.request.typed {
        Request::LdlmIntentGetattr(it) if is_named(&it.name) => Some(it.mdt_body.fid1),
        Request::LdlmIntentOpen(it) if is_named(&it.name) => Some(it.rec_reint.fid1),
        Request::MdsReintCreate(it) => Some(it.rec_reint.fid1),
        Request::MdsReintUnlink(it) => Some(it.rec_reint.fid1),
        Request::MdsReintRename(it) => Some(it.rec_reint.fid1),
        Request::MdsReadpage(it) => Some(it.mdt_body.fid1),
        _ => None,
    }
}
