//! A sequence of deeds from a seed, and what a store must hold after any part of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_store::{
    Change, FileKind, Sequence, Store, Transaction,
    suite::{
        model::Model,
        script::{self, Numbers},
    },
};
use sheen_types::{Fid, HashMap};

/// One step of a story.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Apply(Transaction),
    Write(Fid, u64, Bytes),
    Cut(Fid, u64),
    Sync(Fid),
    CommitSoon,
    Commit,
}

/// The next deed; the same numbers give the same deeds.
pub(crate) fn deed(numbers: &mut Numbers) -> Deed {
    let choice = numbers.next().expect("endless");
    let files = script::objects().split_off(script::DIRECTORIES as usize);
    let file = files[(choice >> 8) as usize % files.len()];
    match choice % 32 {
        0..=19 => Deed::Apply(script::random_transaction(numbers)),
        20 => Deed::Cut(file, (choice >> 32) % 6000),
        21..=28 => {
            let length = 1 + (choice >> 16) as usize % 3000;
            let bytes = (0..length).map(|at| (choice >> (at % 7)) as u8);
            Deed::Write(file, (choice >> 32) % 6000, bytes.collect())
        }
        29 => Deed::Sync(file),
        30 => Deed::CommitSoon,
        _ if choice >> 8 & 3 == 0 => Deed::Commit,
        _ => Deed::CommitSoon,
    }
}

/// Does a deed; refusals are part of the story.
pub(crate) fn perform(store: &dyn Store, deed: &Deed) {
    match deed {
        Deed::Apply(transaction) => drop(store.apply(transaction.clone())),
        Deed::Write(file, offset, bytes) => {
            drop(store.write(*file, *offset, std::slice::from_ref(bytes)));
        }
        Deed::Cut(file, size) => drop(store.truncate(*file, *size)),
        Deed::Sync(file) => drop(store.sync_data(*file)),
        Deed::CommitSoon => store.commit_soon(),
        Deed::Commit => drop(store.commit().expect("commit works")),
    }
}

/// Whose data: the transaction that created the object, and the step. An exchange gives it to another.
pub(crate) type Which = (u64, usize);

/// What a store held before and after each transaction of a story.
pub(crate) struct History {
    /// The sequence of the first state.
    base: u64,
    states: Vec<(Model, BTreeMap<Fid, Which>)>,
    /// Bytes written so far, of all objects that ever were.
    pub(crate) data: HashMap<Which, Vec<u8>>,
}

impl History {
    /// Begins with what a store holds.
    pub(crate) fn begin(base: Sequence, mut model: Model) -> Self {
        let mut data: HashMap<_, _> = HashMap::default();
        let mut alive = BTreeMap::new();
        for (at, (fid, object)) in model.objects.iter_mut().enumerate() {
            alive.insert(*fid, (base.0, at));
            data.insert((base.0, at), std::mem::take(&mut object.data));
        }
        Self { base: base.0, states: vec![(model, alive)], data }
    }

    /// The newest transaction.
    pub(crate) fn applied(&self) -> Sequence {
        Sequence(self.base + self.states.len() as u64 - 1)
    }

    /// The object of a name now, if it is one with data.
    pub(crate) fn which(&self, file: Fid) -> Option<Which> {
        let (model, alive) = self.states.last().expect("the first state stays");
        let object = model.objects.get(&file)?;
        (object.attributes.kind == FileKind::Regular).then(|| alive[&file])
    }

    /// What the deed does to a store.
    pub(crate) fn note(&mut self, deed: &Deed) {
        match deed {
            Deed::Apply(transaction) => {
                let (mut model, mut alive) = self.states.last().expect("never empty").clone();
                if model.apply(transaction).is_err() {
                    return;
                }
                let sequence = self.applied().0 + 1;
                for (at, change) in transaction.changes.iter().enumerate() {
                    match change {
                        Change::Create { object, .. } => {
                            alive.insert(*object, (sequence, at));
                        }
                        Change::Exchange { first, second } => {
                            let (of_first, of_second) = (alive[first], alive[second]);
                            alive.insert(*first, of_second);
                            alive.insert(*second, of_first);
                        }
                        _ => {}
                    }
                }
                self.states.push((model, alive));
            }
            Deed::Write(file, offset, bytes) => {
                let Some(which) = self.which(*file) else { return };
                let (start, end) = (*offset as usize, *offset as usize + bytes.len());
                let data = self.data.entry(which).or_default();
                data.resize(data.len().max(end), 0);
                data[start..end].copy_from_slice(bytes);
            }
            Deed::Cut(file, size) => {
                let Some(which) = self.which(*file) else { return };
                self.data.entry(which).or_default().resize(*size as usize, 0);
            }
            Deed::Sync(_) | Deed::CommitSoon | Deed::Commit => {}
        }
    }

    /// The state after transaction `sequence`, if there was one.
    pub(crate) fn state(&self, sequence: Sequence) -> Option<&(Model, BTreeMap<Fid, Which>)> {
        self.states.get(usize::try_from(sequence.0.checked_sub(self.base)?).ok()?)
    }
}

/// The bytes of an object as the store has them.
pub(crate) fn stored(store: &dyn Store, file: Fid) -> Vec<u8> {
    store.read(file, 0, 1 << 20).expect("an object of the model is there").to_vec()
}

/// Looks through the data of all objects of the story: no crash may look like damage.
pub(crate) fn look_through(store: &dyn Store) -> Result<(), String> {
    for file in script::objects() {
        let mut next = Some(0);
        while let Some(offset) = next {
            let verified = match store.verify(file, offset) {
                Ok(verified) => verified,
                Err(sheen_store::StoreError::NoObject(_)) => break,
                Err(error) => return Err(error.to_string()),
            };
            if let Some(finding) = verified.findings.first() {
                return Err(finding.to_string());
            }
            next = verified.next;
        }
    }
    Ok(())
}
