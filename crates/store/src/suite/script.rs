//! Transactions from numbers: the same numbers make the same transactions in any process.

use bytes::Bytes;
use sheen_types::{Fid, Timestamp};

use crate::{AttributePatch, Attributes, FileKind, Transaction};

/// Names that scripts use for directories: objects that hold keys.
pub const DIRECTORIES: u32 = 4;
/// Names that scripts use for regular files.
pub const FILES: u32 = 8;
/// Names that scripts use for indexes that are no objects.
pub const LOOSE: u32 = 2;
/// Keys that scripts use in each index.
pub const KEYS: u64 = 12;

/// All object names of scripts.
#[must_use]
pub fn objects() -> Vec<Fid> {
    (0..DIRECTORIES + FILES).map(|number| Fid::new(0x2_0000_0400, number + 1)).collect()
}

/// All index names of scripts.
#[must_use]
pub fn indexes() -> Vec<Fid> {
    let loose = (0..LOOSE).map(|number| Fid::new(0x2_0000_0401, number + 1));
    objects().into_iter().take(DIRECTORIES as usize).chain(loose).collect()
}

/// A small generator (SplitMix64), so that a seed means the same in every process.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}

/// One to six changes.
#[must_use]
pub fn random_transaction(numbers: &mut Numbers) -> Transaction {
    let count = 1 + numbers.next().unwrap_or(0) % 6;
    let choices: Vec<u64> = numbers.take(count as usize).collect();
    transaction(&choices)
}

/// One change for each number.
#[must_use]
pub fn transaction(choices: &[u64]) -> Transaction {
    let mut transaction = Transaction::new();
    for choice in choices {
        change(&mut transaction, *choice);
    }
    transaction
}

fn change(transaction: &mut Transaction, choice: u64) {
    let (objects, indexes) = (objects(), indexes());
    let (what, rest) = (choice % 16, choice / 16);
    let object = objects[rest as usize % objects.len()];
    let index = indexes[rest as usize % indexes.len()];
    let rest = rest / 64;
    let key = key(rest % KEYS);
    match what {
        0..=2 => transaction.create(object, attributes(object, rest)),
        3 => transaction.destroy(object),
        4..=5 => transaction.patch(object, patch(rest)),
        6..=7 => transaction.set_xattr(object, xattr_name(rest), value(rest)),
        8 => transaction.remove_xattr(object, xattr_name(rest)),
        9..=11 => transaction.insert(index, key, value(rest)),
        12..=13 => transaction.put(index, key, value(rest)),
        14 => transaction.delete(index, key),
        _ => transaction.exchange(object, objects[(rest / 8) as usize % objects.len()]),
    };
}

fn attributes(object: Fid, rest: u64) -> Attributes {
    let kind = if object.oid <= DIRECTORIES { FileKind::Directory } else { FileKind::Regular };
    Attributes {
        kind,
        permissions: rest as u32 & 0o7777,
        uid: (rest >> 12) as u32,
        links: 1,
        size: if kind == FileKind::Directory { 4096 } else { 0 },
        born: Timestamp { seconds: rest as i64, nanoseconds: 7 },
        version: rest,
        ..Attributes::default()
    }
}

fn patch(rest: u64) -> AttributePatch {
    AttributePatch {
        permissions: (rest & 1 == 0).then_some(rest as u32 & 0o777),
        links_added: (rest % 5) as i32 - 2,
        modified: (rest & 2 == 0).then_some(Timestamp::from_seconds(rest as i64)),
        version: Some(rest),
        ..AttributePatch::default()
    }
}

/// Keys of lengths 1 to 25 that order differently from their numbers.
fn key(number: u64) -> Bytes {
    let mut text = format!("{:x}", number.wrapping_mul(7) % KEYS).into_bytes();
    text.resize(1 + (number as usize * 5) % 25, b'k');
    text.push(number as u8);
    Bytes::from(text)
}

/// Mostly small values, some of some kilobytes.
fn value(rest: u64) -> Bytes {
    let length = if rest.is_multiple_of(16) { 3000 } else { rest % 40 };
    let bytes = rest.to_le_bytes();
    (0..length as usize).map(|at| bytes[at % 8]).collect()
}

fn xattr_name(rest: u64) -> &'static str {
    ["trusted.lov", "trusted.link", "user.a", "user.zz"][rest as usize % 4]
}
