//! Imperative recovery: which targets have started where, so that clients need not find out by
//! timeouts (Lustre's NID table, read as the log `FSNAME-cliir`).
//!
//! In memory; only its version outlives the process, so that clients never see it go back. Targets
//! say again where they are when the MGS is new.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_types::Nid;
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::mgs::{MgsNidtblEntry, TargetFlags};

/// The first version that a client asks for.
const FIRST_VERSION: u64 = 2;
/// Most bytes of a unit of the bulk: a page.
const UNIT_BYTES_MAX: usize = 4096;
/// Bytes of an entry before its NIDs.
const ENTRY_BYTES: usize = 24;
/// Bytes of a NID that may hold a large address (`struct lnet_nid`).
const LARGE_NID_BYTES: u8 = 20;
/// Bytes of the address in one.
const LARGE_ADDRESS_BYTES: usize = 16;

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TargetNids {
    version: u64,
    instance: u32,
    nids: Vec<Nid>,
}

/// The table of one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NidTable {
    version: u64,
    places: BTreeMap<(u32, u32), TargetNids>,
}

/// What goes out as bulk, and how far it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) bytes: Bytes,
    /// Version to go on from.
    pub(crate) next: u64,
    /// The table's version.
    pub(crate) version: u64,
}

/// How the reader wants the bulk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryFormat {
    /// Logarithm of a unit's bytes; no entry crosses a unit.
    pub(crate) bits: u8,
    /// Units that the reader has room for.
    pub(crate) units: u32,
    /// Bytes per NID; 0 for 8-byte NIDs.
    pub(crate) nid_bytes: u8,
}

impl NidTable {
    /// An empty table that goes on behind `version`.
    pub(crate) fn new(version: u64) -> Self {
        Self { version, places: BTreeMap::new() }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A target has started, or moved.
    pub(crate) fn set(&mut self, kind: TargetFlags, index: u32, instance: u32, nids: &[Nid]) {
        self.version = (self.version + 1).max(FIRST_VERSION);
        let place = TargetNids { version: self.version, instance, nids: nids.to_vec() };
        self.places.insert((kind.0, index), place);
    }

    /// The entries from version `from` on.
    pub(crate) fn read(&self, from: u64, shape: EntryFormat) -> Entries {
        let unit = UNIT_BYTES_MAX.min(1 << shape.bits.min(12));
        let room = (shape.units as usize) << shape.bits.min(20);
        let mut newer: Vec<_> = self.places.iter().collect();
        newer.retain(|(_, place)| place.version >= from);
        newer.sort_by_key(|(_, place)| place.version);
        let mut entries: Vec<MgsNidtblEntry> = Vec::new();
        let (mut used, mut next, mut is_whole) = (0, from, true);
        for ((kind, index), place) in newer {
            let entry = entry(place, *kind, *index, shape.nid_bytes);
            let length = ENTRY_BYTES + entry.nids.len();
            let left = unit - used % unit;
            if length > left {
                // The last entry takes what is left of its unit.
                if let Some(last) = entries.last_mut() {
                    last.nids = [&last.nids[..], &vec![0; left]].concat().into();
                    used += left;
                }
            }
            if used + length > room || length > unit {
                is_whole = false;
                break;
            }
            used += length;
            next = place.version;
            entries.push(entry);
        }
        let mut writer = Writer::with_capacity(used);
        entries.iter().for_each(|entry| entry.encode(&mut writer));
        let next = if is_whole { self.version } else { next };
        Entries { bytes: writer.into_bytes(), next, version: self.version }
    }
}

fn entry(place: &TargetNids, kind: u32, index: u32, nid_bytes: u8) -> MgsNidtblEntry {
    let kind = TargetFlags(kind);
    let plain = MgsNidtblEntry::new(place.version, kind, index, place.instance, &place.nids);
    if nid_bytes != LARGE_NID_BYTES {
        return plain;
    }
    let mut writer = Writer::with_capacity(place.nids.len() * usize::from(nid_bytes));
    for nid in &place.nids {
        // Size beyond 4 bytes, type, number and address in network order.
        [0u8, nid.net_type().0 as u8].encode(&mut writer);
        writer.put(&nid.net_number().to_be_bytes());
        writer.put(&nid.address().octets());
        writer.zeros(LARGE_ADDRESS_BYTES - 4);
    }
    MgsNidtblEntry { nid_type: 1, nid_size: nid_bytes, nids: writer.into_bytes(), ..plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> NidTable {
        let nid: Nid = "10.77.0.11@tcp".parse().unwrap();
        let mut table = NidTable::new(2);
        for (kind, index, instance) in [
            (TargetFlags::SV_TYPE_MDT, 0, 1),
            (TargetFlags::SV_TYPE_MDT, 1, 1),
            (TargetFlags::SV_TYPE_OST, 0, 1),
            (TargetFlags::SV_TYPE_OST, 1, 1),
            (TargetFlags::SV_TYPE_OST, 2, 1),
            (TargetFlags::SV_TYPE_OST, 3, 1),
        ] {
            table.set(kind, index, instance, &[nid]);
        }
        table
    }

    /// The bulk of capture a: six targets at 10.77.0.11, versions 3 to 8, 20-byte NIDs.
    #[test]
    fn the_bulk_is_the_captured_one() {
        let read = table().read(1, EntryFormat { bits: 12, units: 256, nid_bytes: 20 });
        let first = "030000000000000001000000000000002c000000010114010002\
                     00000a4d000b000000000000000000000000";
        let hex: String = read.bytes[..44].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, first.replace(' ', ""));
        assert_eq!((read.bytes.len(), read.next, read.version), (264, 8, 8));
    }

    #[test]
    fn a_reader_with_little_room_comes_again() {
        let table = table();
        let shape = EntryFormat { bits: 6, units: 2, nid_bytes: 0 };
        let (mut from, mut seen) = (1, 0);
        loop {
            let read = table.read(from, shape);
            assert!(read.bytes.len() <= 128);
            seen += 1;
            if read.next == read.version {
                break;
            }
            assert!(read.next >= from);
            from = read.next + 1;
        }
        assert_eq!(seen, 2);
        assert!(table.read(9, shape).bytes.is_empty());
    }
}
