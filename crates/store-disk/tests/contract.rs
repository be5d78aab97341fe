//! The contract's suite on disk.

mod common;

use std::sync::Arc;

use sheen_store::Store;
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};

fn make(options: &OpenOptions, format: &FormatOptions) -> Arc<StoreDisk> {
    let dir = common::kept();
    StoreDisk::format(&dir, format).expect("format works");
    Arc::new(StoreDisk::open(&dir, options).expect("open works"))
}

fn plain() -> Arc<StoreDisk> {
    make(&OpenOptions::default(), &FormatOptions::default())
}

fn reopen(store: Arc<StoreDisk>) -> Arc<StoreDisk> {
    let dir = store.dir().to_owned();
    drop(Arc::into_inner(store).expect("the last reference to the store"));
    Arc::new(StoreDisk::open(&dir, &OpenOptions::default()).expect("open works"))
}

mod on_disk {
    use super::*;
    sheen_store::contract!(|| plain() as Arc<dyn Store>);
}

/// As small as it gets: everything is evicted, groups overfill.
mod tight {
    use super::*;
    sheen_store::contract!(|| {
        let options = OpenOptions { cache_bytes: 1, open_files: 1, ..Default::default() };
        let format = FormatOptions {
            capacity_bytes: Some(4 << 30),
            memtable_bytes: 1 << 20,
            ..Default::default()
        };
        make(&options, &format) as Arc<dyn Store>
    });
}

mod durable {
    use super::*;
    sheen_store::contract_durable!(plain, reopen);
}
