//! The smallest store that keeps the contract: ordered maps, copied to undo.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_types::Fid;

use crate::{Attributes, Change, FileKind, KEY_BYTES_MAX, Store, StoreError, Transaction};

/// One object of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelObject {
    /// As created and patched; of a data object without `size` and `blocks`.
    pub attributes: Attributes,
    /// By name.
    pub xattrs: BTreeMap<String, Bytes>,
    /// The bytes of a data object.
    pub data: Vec<u8>,
}

/// All that a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// By name.
    pub objects: BTreeMap<Fid, ModelObject>,
    /// By index and key.
    pub keys: BTreeMap<(Fid, Bytes), Bytes>,
}

impl Model {
    /// Applies `transaction` whole or not at all.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn apply(&mut self, transaction: &Transaction) -> Result<(), StoreError> {
        let mut next = self.clone();
        for change in &transaction.changes {
            next.step(change)?;
        }
        *self = next;
        Ok(())
    }

    fn object(&mut self, object: Fid) -> Result<&mut ModelObject, StoreError> {
        self.objects.get_mut(&object).ok_or(StoreError::NoObject(object))
    }

    fn step(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Create { object, attributes } => {
                if self.objects.contains_key(object) {
                    return Err(StoreError::Exists(*object));
                }
                let attributes = attributes.clone();
                self.objects.insert(*object, ModelObject { attributes, ..Default::default() });
            }
            Change::Destroy { object } => {
                self.objects.remove(object).ok_or(StoreError::NoObject(*object))?;
                self.keys.retain(|(index, _), _| index != object);
            }
            Change::Patch { object, patch } => patch.apply(&mut self.object(*object)?.attributes),
            Change::SetXattr { object, name, value } => {
                let xattrs = &mut self.object(*object)?.xattrs;
                match value {
                    Some(value) => xattrs.insert(name.clone(), value.clone()),
                    None => xattrs.remove(name),
                };
            }
            Change::Exchange { first, second } => {
                for fid in [first, second] {
                    if self.object(*fid)?.attributes.kind != FileKind::Regular {
                        return Err(StoreError::WrongKind(*fid));
                    }
                }
                let data = std::mem::take(&mut self.object(*first)?.data);
                let data = std::mem::replace(&mut self.object(*second)?.data, data);
                if first != second {
                    self.object(*first)?.data = data;
                }
            }
            Change::Insert { index, key, value } => {
                let place = self.place(*index, key)?;
                if self.keys.contains_key(&place) {
                    return Err(StoreError::Exists(*index));
                }
                self.keys.insert(place, value.clone());
            }
            Change::Put { index, key, value } => {
                let place = self.place(*index, key)?;
                self.keys.insert(place, value.clone());
            }
            Change::Delete { index, key } => {
                let place = self.place(*index, key)?;
                self.keys.remove(&place).ok_or(StoreError::NoKey(*index))?;
            }
        }
        Ok(())
    }

    fn place(&self, index: Fid, key: &Bytes) -> Result<(Fid, Bytes), StoreError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(StoreError::WrongKind(index));
        }
        Ok((index, key.clone()))
    }

    /// Panics unless `store` holds exactly this, of all names in `objects` and `indexes`.
    pub fn compare(&self, store: &dyn Store, objects: &[Fid], indexes: &[Fid]) {
        if let Err(difference) = self.difference(store, objects, indexes) {
            panic!("{difference}");
        }
    }

    /// What differs between `store` and this, of all names in `objects` and `indexes`.
    ///
    /// # Errors
    /// A text that says what differs.
    pub fn difference(
        &self,
        store: &dyn Store,
        objects: &[Fid],
        indexes: &[Fid],
    ) -> Result<(), String> {
        for fid in objects {
            self.compare_object(store, *fid)?;
        }
        for fid in indexes {
            let found: Vec<(Bytes, Bytes)> = store
                .scan(*fid, b"", usize::MAX)
                .map_err(|error| format!("{fid}: {error}"))?
                .into_iter()
                .map(|entry| (entry.key, entry.value))
                .collect();
            let expected: Vec<(Bytes, Bytes)> = self
                .keys
                .range((*fid, Bytes::new())..)
                .take_while(|((index, _), _)| index == fid)
                .map(|((_, key), value)| (key.clone(), value.clone()))
                .collect();
            same(*fid, "keys", &found, &expected)?;
            for (key, value) in &expected {
                same(*fid, "lookup", &store.lookup(*fid, key), &Ok(Some(value.clone())))?;
            }
        }
        Ok(())
    }

    fn compare_object(&self, store: &dyn Store, fid: Fid) -> Result<(), String> {
        let Some(object) = self.objects.get(&fid) else {
            return same(
                fid,
                "attributes",
                &store.attributes(fid),
                &Err(StoreError::NoObject(fid)),
            );
        };
        let mut found = store.attributes(fid).map_err(|error| format!("{fid}: {error}"))?;
        let mut expected = object.attributes.clone();
        if expected.kind == FileKind::Regular {
            same(fid, "size", &found.size, &(object.data.len() as u64))?;
            (expected.size, expected.blocks) = (0, 0);
            (found.size, found.blocks) = (0, 0);
        }
        same(fid, "attributes", &found, &expected)?;
        let names: Vec<String> = object.xattrs.keys().cloned().collect();
        same(fid, "xattr names", &store.xattr_names(fid), &Ok(names.clone()))?;
        let whole = store.whole(fid).map_err(|error| format!("{fid}: {error}"))?;
        same(fid, "whole", &whole.attributes.links, &expected.links)?;
        let pairs = whole.xattrs.iter().map(|(name, value)| (name.to_owned(), value.clone()));
        same(fid, "xattrs", &pairs.collect(), &object.xattrs)?;
        for (name, value) in &object.xattrs {
            same(fid, "xattr", &store.xattr(fid, name), &Ok(Some(value.clone())))?;
        }
        if object.attributes.kind == FileKind::Regular {
            let found = store.read(fid, 0, object.data.len() + 1);
            let found = found.map_err(|error| format!("{fid}: {error}"))?;
            if found != object.data {
                let at = found.iter().zip(&object.data).position(|(left, right)| left != right);
                return Err(format!("{fid}: data differs at {at:?}"));
            }
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(
    fid: Fid,
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{fid}: {what}: found {found:?}, expected {expected:?}"))
}
