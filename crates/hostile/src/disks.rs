//! Files of a store, changed as bytes say: the store opens and can be read, or is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sheen_store::{Attributes, Store, Transaction};
use sheen_store_disk::{DiskError, FormatOptions, OpenOptions, StoreDisk};
use sheen_types::Fid;

use crate::source::{Input, Source};

/// Objects of the store.
const OBJECTS: u32 = 12;
/// The index that holds names of them.
const INDEX: Fid = Fid::new(7, 1);
/// Changes of one input, at most.
const CHANGES: u64 = 8;

/// A file's path below the store's directory, and its bytes without the zeros at its end.
struct Kept {
    path: PathBuf,
    bytes: Vec<u8>,
    length: u64,
}

/// A directory that goes with this value.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sheen-hostile-{}-{number}", std::process::id());
        // Most of an input's time is making and removing files: in memory, where there is such a place.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn object(number: u32) -> Fid {
    Fid::new(9, number)
}

fn fill(dir: &Path) -> Result<(), DiskError> {
    StoreDisk::format(
        dir,
        &FormatOptions { label: "lustre-OST0000".to_owned(), ..Default::default() },
    )?;
    let store = StoreDisk::open(dir, &OpenOptions::default())?;
    let mut first = Transaction::new();
    first.create(INDEX, Attributes::default());
    store.apply(first).expect("an index");
    for number in 1..=OBJECTS {
        let mut transaction = Transaction::new();
        transaction.create(object(number), Attributes::default());
        transaction.set_xattr(object(number), "trusted.lma", Bytes::from(vec![number as u8; 64]));
        let key = Bytes::from(format!("name-{number}"));
        transaction.insert(INDEX, key, Bytes::from(vec![number as u8; 40]));
        store.apply(transaction).expect("an object");
        let data = Bytes::from(vec![number as u8; 3_000]);
        store.write(object(number), 0, &[data]).expect("bytes");
        store.commit().expect("it is durable");
    }
    Ok(())
}

fn collect(root: &Path, at: &Path, found: &mut Vec<Kept>) {
    let mut entries: Vec<_> = fs::read_dir(at)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(root, &path, found);
            continue;
        }
        let mut bytes = fs::read(&path).expect("a file");
        let length = bytes.len() as u64;
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        let path = path.strip_prefix(root).expect("below it").to_owned();
        found.push(Kept { path, bytes, length });
    }
}

/// A store that was closed, and one as a crash leaves it.
fn template() -> &'static [Kept] {
    static TEMPLATE: OnceLock<Vec<Kept>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = Temporary::new();
        fill(&dir.0).expect("a store");
        let mut found = Vec::new();
        collect(&dir.0, &dir.0, &mut found);
        found
    })
}

/// What becomes of a file.
fn change(input: &std::sync::Arc<Input>, bytes: &mut Vec<u8>, length: &mut u64) -> bool {
    let at = match bytes.len() {
        0 => 0,
        some => input.below(some as u64) as usize,
    };
    match input.below(8) {
        1 => return false,
        2 => {
            bytes.truncate(at);
            *length = at as u64;
        }
        3 => *length = length.saturating_add(input.below(1 << 16)),
        4 => {
            let more = input.bytes(32);
            bytes.splice(at..at, more);
            *length = (*length).max(bytes.len() as u64);
        }
        5 => {
            let end = (at + input.below(4_096) as usize).min(bytes.len());
            bytes[at..end].fill(0);
        }
        6 => {
            let end = (at + 8).min(bytes.len());
            let number = input.pick(&[u64::MAX, 1 << 40, 1 << 31, u64::from(u32::MAX)]);
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        _ if !bytes.is_empty() => bytes[at] ^= input.below(256) as u8,
        _ => {}
    }
    true
}

/// All that can be read, and one change.
fn use_it(store: &StoreDisk) {
    for number in 0..=OBJECTS + 1 {
        let fid = object(number);
        drop(store.attributes(fid));
        drop(store.xattr_names(fid));
        drop(store.xattr(fid, "trusted.lma"));
        drop(store.read(fid, 0, 8_192));
        drop(store.seek(fid, 0, true));
        drop(store.lookup(INDEX, format!("name-{number}").as_bytes()));
    }
    drop(store.scan(INDEX, b"", 1_000));
    drop(store.space());
    let mut transaction = Transaction::new();
    transaction.create(object(OBJECTS + 5), Attributes::default());
    transaction.destroy(object(1));
    drop(store.apply(transaction));
    drop(store.write(object(OBJECTS + 5), 0, &[Bytes::from_static(b"bytes")]));
    drop(store.commit());
}

/// Opens and uses a store whose files `data` has changed.
pub fn store_files(data: &[u8]) {
    let input = Input::new(data);
    let files = template();
    let mut changed: Vec<(Vec<u8>, u64, bool)> =
        files.iter().map(|file| (file.bytes.clone(), file.length, true)).collect();
    for _ in 0..CHANGES {
        if input.is_empty() {
            break;
        }
        let (bytes, length, is_there) = &mut changed[input.below(files.len() as u64) as usize];
        *is_there &= change(&input, bytes, length);
    }
    let dir = Temporary::new();
    for (file, (bytes, length, is_there)) in files.iter().zip(&changed) {
        let path = dir.0.join(&file.path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        if *is_there {
            fs::write(&path, bytes).expect("a file");
            let made = fs::OpenOptions::new().write(true).open(&path).expect("the file");
            made.set_len(*length).expect("its length");
        }
    }
    if let Ok(store) = StoreDisk::open(&dir.0, &OpenOptions::default()) {
        use_it(&store);
        drop(store);
        // What it has made of itself opens again, or is refused.
        drop(StoreDisk::open(&dir.0, &OpenOptions::default()));
    }
}
