//! What was there before a capture: the files and directories that it names and does not make.

use std::collections::{BTreeMap, BTreeSet};

use sheen_types::Fid;
use sheen_wire::dir::{DirPage, PAGE_SIZE};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{Reply, Request};
use sheen_wire::text::Text;

use crate::script::{Exchange, Script};

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// A file or directory from before the capture.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) parent: Fid,
    pub(crate) fid: Fid,
    pub(crate) name: Text,
    pub(crate) mode: u32,
    pub(crate) time: i64,
}

impl Entry {
    pub(crate) fn is_directory(&self) -> bool {
        self.mode & TYPE_MASK == DIRECTORY
    }

    fn can_be_made(&self) -> bool {
        [DIRECTORY, REGULAR].contains(&(self.mode & TYPE_MASK))
    }
}

/// What a script names before it makes it, each behind its parent. A directory whose name is not
/// told is put into the root.
pub(crate) fn entries(script: &Script) -> Vec<Entry> {
    let mut made = BTreeSet::from([Fid::ROOT]);
    let mut found: BTreeMap<Fid, Entry> = BTreeMap::new();
    for exchange in &script.exchanges {
        made.extend(new_fid(exchange));
        for entry in told(exchange).into_iter().chain(listed(exchange)) {
            if !made.contains(&entry.fid) && entry.can_be_made() {
                found.entry(entry.fid).or_insert(entry);
            }
        }
    }
    let parents: Vec<_> = script.exchanges.iter().filter_map(parent_of).collect();
    let parents = parents.into_iter().chain(found.values().map(|it| it.parent)).collect::<Vec<_>>();
    for fid in parents {
        if !fid.is_zero() && !made.contains(&fid) {
            let name = Text::from(format!("{fid}").as_str());
            let mut said = script.exchanges.iter().filter_map(body_of);
            let body = said.find(|body| body.fid1 == fid && body.mode & TYPE_MASK == DIRECTORY);
            let (mode, time) = body.map_or((DIRECTORY | 0o755, 1), |body| (body.mode, body.ctime));
            found.entry(fid).or_insert(Entry { parent: Fid::ROOT, fid, name, mode, time });
        }
    }
    let mut sorted = Vec::new();
    while !found.is_empty() {
        let is_next = |entry: &Entry| !found.contains_key(&entry.parent);
        let next: Vec<_> = found.values().filter(|it| is_next(it)).cloned().collect();
        if next.is_empty() {
            break;
        }
        next.iter().for_each(|entry| drop(found.remove(&entry.fid)));
        sorted.extend(next);
    }
    sorted
}

/// What an answer says of an inode.
fn body_of(exchange: &Exchange) -> Option<&MdtBody> {
    match &exchange.reply.as_ref()?.0.typed {
        Reply::LdlmIntentGetattr(told) => told.mdt_body.as_ref(),
        Reply::LdlmIntentOpen(told) => told.mdt_body.as_ref(),
        Reply::MdsGetattr(told) => told.mdt_body.as_ref(),
        _ => None,
    }
}

/// The FID that a request makes.
fn new_fid(exchange: &Exchange) -> Option<Fid> {
    match (&exchange.request.typed, exchange.reply.as_ref().map(|(reply, _)| &reply.typed)) {
        (Request::MdsReintCreate(create), _) => Some(create.rec_reint.fid2),
        (Request::MdsReintCreateSym(create), _) => Some(create.rec_reint.fid2),
        (Request::LdlmIntentOpen(open), Some(Reply::LdlmIntentOpen(told))) => {
            let how = told.dlm_rep.as_ref()?.policy_res1;
            how.contains(Disposition::OPEN_CREATE).then_some(open.rec_reint.fid2)
        }
        _ => None,
    }
}

/// What a lookup or open by name found.
fn told(exchange: &Exchange) -> Option<Entry> {
    let (reply, _) = exchange.reply.as_ref()?;
    let entry = |parent: Fid, name: &Text, body: &MdtBody| Entry {
        parent,
        fid: body.fid1,
        name: name.clone(),
        mode: body.mode,
        time: body.ctime,
    };
    let found = match (&exchange.request.typed, &reply.typed) {
        (Request::LdlmIntentGetattr(asked), Reply::LdlmIntentGetattr(told)) => {
            entry(asked.mdt_body.fid1, asked.name.as_ref()?, told.mdt_body.as_ref()?)
        }
        (Request::LdlmIntentOpen(asked), Reply::LdlmIntentOpen(told)) => {
            entry(asked.rec_reint.fid1, asked.name.as_ref()?, told.mdt_body.as_ref()?)
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
                (!is_dot).then_some(Entry { parent, fid: entry.fid, name, mode, time: 1 })
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
