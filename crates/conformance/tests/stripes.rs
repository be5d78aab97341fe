//! Names of striped directories lie where our hashes put them: all that clients of a real Lustre ask stripes for, and all that
//! its MDTs list of them, while names are moved between stripes, too.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use sheen_conformance::golden;
use sheen_conformance::pcap::packets;
use sheen_conformance::rpc::{Meaning, Tracker, match_bits};
use sheen_conformance::session::{LnetMessage, Said, events};
use sheen_layout::directory::{DirectoryLayout, Holder};
use sheen_types::{Fid, HashMap, Nid};
use sheen_wire::dir::{DirPage, PAGE_SIZE};
use sheen_wire::lmv::{LmvEa, LmvHash};
use sheen_wire::messages::Request;
use sheen_wire::text::Text;

/// What one capture shows, message by message.
#[derive(Default)]
struct Reader {
    tracker: Tracker,
    /// Of which directory a client asked for pages, by the match bits of its bulk.
    listed: HashMap<(Nid, u64), Fid>,
    /// The newest layout that a stripe is in, and its number there.
    stripes: HashMap<Fid, (DirectoryLayout, u32)>,
    /// Names that were found in the right stripe, by hash.
    found: BTreeMap<LmvHash, usize>,
    misplaced: Vec<String>,
}

impl Reader {
    fn message(&mut self, lnet: &LnetMessage) {
        match self.tracker.understand(lnet) {
            Meaning::Request(rpc) => {
                if let Request::MdsReadpage(page) = &rpc.typed {
                    let bits = rpc.body.match_bits.0;
                    let bits = if bits == 0 { match_bits(lnet) } else { bits };
                    self.listed.insert((lnet.header.source, bits), page.mdt_body.fid1);
                }
                for (directory, name) in names(&rpc.typed) {
                    self.name(directory, name.as_bytes());
                }
            }
            Meaning::Reply(rpc) => rpc.message.buffers.iter().skip(1).for_each(|it| self.learn(it)),
            Meaning::Bulk(_, bytes) => {
                let asked = (lnet.header.destination, match_bits(lnet));
                let Some(directory) = self.listed.get(&asked).copied() else { return };
                self.pages(directory, &bytes);
            }
            _ => {}
        }
    }

    /// Keeps the layout of a striped directory, if `bytes` are one.
    fn learn(&mut self, bytes: &Bytes) {
        let Ok(ea @ LmvEa::Stripes { .. }) = LmvEa::decode(bytes) else { return };
        let layout = DirectoryLayout::from_ea(&ea).expect("Lustre sends layouts that can be");
        let Holder::Master { stripes, .. } = layout.holder() else { return };
        for (number, stripe) in (0..).zip(stripes) {
            self.stripes.insert(*stripe, (layout.clone(), number));
        }
    }

    fn pages(&mut self, directory: Fid, bytes: &Bytes) {
        let whole = (0..bytes.len() / PAGE_SIZE).map(|page| page * PAGE_SIZE);
        for at in whole {
            let page = DirPage::decode(&bytes.slice(at..at + PAGE_SIZE)).expect("a page");
            let names = page.entries.into_iter().map(|entry| entry.name);
            let names = names.filter(|name| !matches!(&name[..], b"." | b".."));
            names.for_each(|name| self.name(directory, &name));
        }
    }

    fn name(&mut self, directory: Fid, name: &[u8]) {
        let Some((layout, number)) = self.stripes.get(&directory) else { return };
        let places = layout.places(name).expect("a hash that we know");
        if places.now == *number || places.before == Some(*number) {
            *self.found.entry(layout.hash().without_flags()).or_default() += 1;
        } else {
            let name = name.escape_ascii();
            self.misplaced.push(format!("{name} in stripe {number}, not {places:?}: {layout:?}"));
        }
    }
}

/// The names that a request asks for, each with its directory.
fn names(request: &Request) -> Vec<(Fid, &Text)> {
    match request {
        Request::LdlmIntentOpen(open) => vec![(open.rec_reint.fid1, &open.name)],
        Request::LdlmIntentCreate(create) => vec![(create.rec_reint.fid1, &create.name)],
        Request::LdlmIntentGetattr(getattr) => vec![(getattr.mdt_body.fid1, &getattr.name)],
        Request::MdsReintCreate(create) => vec![(create.rec_reint.fid1, &create.name)],
        Request::MdsReintLink(link) => vec![(link.rec_reint.fid2, &link.name)],
        Request::MdsReintUnlink(unlink) => vec![(unlink.rec_reint.fid1, &unlink.name)],
        Request::MdsReintRename(rename) => {
            vec![(rename.rec_reint.fid1, &rename.name), (rename.rec_reint.fid2, &rename.symtgt)]
        }
        _ => vec![],
    }
    .into_iter()
    .filter_map(|(directory, name)| Some((directory, name.as_ref()?)))
    // What asks for the directory itself has an empty name.
    .filter(|(_, name)| !name.as_bytes().is_empty())
    .collect()
}

fn read(path: &Path) -> Reader {
    let file = std::fs::read(path).expect("a capture");
    let mut reader = Reader::default();
    for event in events(&packets(&file.into()).expect("a capture")) {
        if let Said::Message(lnet) = &event.what {
            reader.message(lnet);
        }
    }
    reader
}

/// Counts the names in the captures whose files are named so.
fn found(directory: &Path, names: &[&str]) -> BTreeMap<LmvHash, usize> {
    let mut sum = BTreeMap::default();
    let files = golden::files(directory).into_iter();
    let named = |path: &Path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        names.iter().any(|name| stem.starts_with(name))
    };
    for path in files.filter(|path| named(path)) {
        let reader = read(&path);
        assert_eq!(reader.misplaced, Vec::<String>::new(), "{}", path.display());
        println!("{}: {:?}", path.display(), reader.found);
        for (hash, count) in reader.found {
            *sum.entry(hash).or_default() += count;
        }
    }
    sum
}

#[test]
fn names_are_in_the_stripes_where_our_hashes_put_them() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let sum = found(&directory, &["e1", "e2", "e3", "d2-striped", "d3", "d4-migrate", "d5", "d6"]);
    for (hash, least) in
        [(LmvHash::ALL_CHARS, 20), (LmvHash::FNV_1A_64, 1000), (LmvHash::CRUSH, 20)]
    {
        assert!(sum.get(&hash).copied().unwrap_or_default() >= least, "{hash:?}: {sum:?}");
    }
}

#[test]
fn names_are_there_while_stripes_are_added_and_removed() {
    let Some(directory) = sheen_skip::needs_captures_of_faults() else { return };
    let sum = found(&directory, &["n4", "n6"]);
    assert!(sum.get(&LmvHash::FNV_1A_64).copied().unwrap_or_default() >= 500, "{sum:?}");
}
