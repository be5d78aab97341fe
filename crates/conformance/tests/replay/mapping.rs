//! What is called one thing in a capture and another in our world: handles, sequences, objects.

use bytes::Bytes;
use sheen_types::{Fid, HashMap, HashSet, Transno};
use sheen_wire::lmv::LmvEa;
use sheen_wire::lov::{LovEa, LovMd};
use sheen_wire::ost::OstId;

use crate::player::TargetId;

/// Smaller numbers are no names: they would be found everywhere.
const NAME_MIN: u64 = 1 << 32;

/// Names of the capture and ours for the same things.
#[derive(Default)]
pub(crate) struct Mapping {
    words: HashMap<u64, u64>,
    /// Inodes that servers named: the stripes of directories.
    fids: HashMap<(u64, u64), (u64, u64)>,
    /// What the client called inodes that move to another MDT.
    moved: HashSet<(u64, u64)>,
    objects: HashMap<(u64, u64), (u64, u64)>,
    /// Our objects' OSTs.
    osts: HashMap<(u64, u64), u32>,
    /// Transactions, by the server and the captured one's number: those of two servers may be the same.
    transnos: HashMap<(TargetId, u64), u64>,
    /// The OST of ours that stands for a captured one, by their numbers.
    places: HashMap<u32, u32>,
}

/// A buffer with our names in it.
pub(crate) struct Translated {
    pub(crate) bytes: Bytes,
    /// The OST that has the first object named.
    pub(crate) ost: Option<u32>,
}

impl Mapping {
    /// Learns that `real` is `ours`.
    pub(crate) fn learn(&mut self, real: u64, ours: u64) {
        if real >= NAME_MIN && ours != 0 {
            self.words.insert(real, ours);
        }
    }

    /// Our name for `real`.
    pub(crate) fn word(&self, real: u64) -> Option<u64> {
        self.words.get(&real).copied()
    }

    /// Learns what a transaction is called here. These numbers are small: elsewhere they may mean
    /// anything.
    pub(crate) fn learn_transno(&mut self, of: TargetId, real: Transno, ours: Transno) {
        if real.0 != 0 && ours.0 != 0 {
            self.transnos.insert((of, real.0), ours.0);
        }
    }

    /// Our number of a transaction.
    pub(crate) fn transno(&self, of: TargetId, real: Transno) -> Transno {
        Transno(self.transnos.get(&(of, real.0)).copied().unwrap_or(real.0))
    }

    /// Learns the objects of two layouts of the same file.
    pub(crate) fn learn_layouts(&mut self, real: &Bytes, ours: &Bytes) {
        let (Ok(real), Ok(ours)) = (LovEa::decode(real), LovEa::decode(ours)) else { return };
        for (real, ours) in plain(&real).into_iter().zip(plain(&ours)) {
            for (real, ours) in real.stripes.iter().zip(&ours.stripes) {
                self.learn_object(&real.oi, &ours.oi, ours.ost_idx);
                self.places.insert(real.ost_idx, ours.ost_idx);
            }
        }
    }

    /// Learns the stripes of two layouts of the same directory, which servers name.
    pub(crate) fn learn_stripes(&mut self, real: &Bytes, ours: &Bytes) {
        let stripes = |bytes| match LmvEa::decode(bytes) {
            Ok(LmvEa::Stripes { fids, .. }) => fids,
            _ => Vec::new(),
        };
        for (real, ours) in stripes(real).into_iter().zip(stripes(ours)) {
            self.fids.insert(words(real), words(ours));
        }
    }

    /// The client has named an inode that moves, which is no directory: our MDT names it itself.
    pub(crate) fn note_moved(&mut self, real: Fid) {
        self.moved.insert(words(real));
    }

    /// Learns what an inode that has moved is called here; whether that is another name than the client's.
    pub(crate) fn learn_moved(&mut self, real: Fid, ours: Fid) -> bool {
        let is_new = self.fid(real) != ours && self.moved.remove(&words(real));
        if is_new {
            self.fids.insert(words(real), words(ours));
        }
        is_new
    }

    /// Our name of an inode.
    pub(crate) fn fid(&self, real: Fid) -> Fid {
        match self.fids.get(&words(real)) {
            Some((seq, rest)) => Fid { seq: *seq, oid: *rest as u32, ver: (*rest >> 32) as u32 },
            None => Fid { seq: self.word(real.seq).unwrap_or(real.seq), ..real },
        }
    }

    /// Whether `ours` is the inode that a captured server has named `real`.
    pub(crate) fn is_inode(&self, real: Fid, ours: Fid) -> bool {
        self.fids.contains_key(&words(real)) && self.fid(real) == ours
    }

    fn learn_object(&mut self, real: &OstId, ours: &OstId, ost: u32) {
        // An object's lock has the same two words for its name.
        let words = |id: &OstId| (id.word0, id.word1);
        self.objects.insert(words(real), words(ours));
        self.osts.insert(words(ours), ost);
    }

    /// Whether `real` is the name of a known object, and of which OST.
    pub(crate) fn object(&self, real: (u64, u64)) -> Option<((u64, u64), u32)> {
        let ours = *self.objects.get(&real)?;
        Some((ours, self.osts.get(&ours).copied().unwrap_or(0)))
    }

    /// Our OST that stands for the captured one of this number.
    pub(crate) fn ost(&self, real: u32) -> u32 {
        self.places.get(&real).copied().unwrap_or(real)
    }

    /// A layout that the client sends to the MDT, with our objects and their OSTs.
    pub(crate) fn sent_layout(&self, layout: &Bytes) -> Option<Bytes> {
        let Ok(LovEa::Plain(mut plain)) = LovEa::decode(layout) else { return None };
        for stripe in &mut plain.stripes {
            let (ours, ost) = self.object((stripe.oi.word0, stripe.oi.word1))?;
            (stripe.oi.word0, stripe.oi.word1) = ours;
            stripe.ost_idx = ost;
        }
        (!plain.stripes.is_empty()).then(|| LovEa::Plain(plain).encode())
    }

    /// Puts our names into a buffer of a request.
    pub(crate) fn translate(&self, bytes: &Bytes) -> Translated {
        let mut whole = bytes.to_vec();
        let mut ost = None;
        let word = |whole: &[u8], at: usize| {
            let bytes = whole.get(at..at + 8)?;
            bytes.try_into().ok().map(u64::from_le_bytes)
        };
        let mut at = 0;
        while let Some(first) = word(&whole, at) {
            let object = word(&whole, at + 8).and_then(|second| self.object((first, second)));
            if let Some((ours, index)) = object {
                whole[at..at + 8].copy_from_slice(&ours.0.to_le_bytes());
                whole[at + 8..at + 16].copy_from_slice(&ours.1.to_le_bytes());
                ost = ost.or(Some(index));
                at += 16;
                continue;
            }
            let inode = word(&whole, at + 8).and_then(|second| self.fids.get(&(first, second)));
            if let Some(ours) = inode {
                whole[at..at + 8].copy_from_slice(&ours.0.to_le_bytes());
                whole[at + 8..at + 16].copy_from_slice(&ours.1.to_le_bytes());
                at += 16;
                continue;
            }
            if let Some(ours) = self.word(first) {
                whole[at..at + 8].copy_from_slice(&ours.to_le_bytes());
            }
            at += 8;
        }
        Translated { bytes: whole.into(), ost }
    }

    /// Whether two values, as text, mean the same.
    pub(crate) fn same(&self, real: &str, ours: &str) -> bool {
        if real == ours {
            return true;
        }
        if let (Some(real), Some(ours)) = (number(real), number(ours)) {
            return self.word(real) == Some(ours);
        }
        match (names(real), names(ours)) {
            (Some(real), Some(ours)) if real.len() == ours.len() => self.same_name(&real, &ours),
            _ => false,
        }
    }

    fn same_name(&self, real: &[u64], ours: &[u64]) -> bool {
        let pair = |name: &[u64]| (name[0], name[1]);
        if let Some((object, _)) = self.object(pair(real)) {
            return object == pair(ours) && real[2..] == ours[2..];
        }
        if let Some(inode) = self.fids.get(&pair(real)) {
            return *inode == pair(ours) && real[2..] == ours[2..];
        }
        let first = self.word(real[0]).unwrap_or(real[0]);
        first == ours[0] && real[1..] == ours[1..]
    }
}

/// A FID as two words of a message.
fn words(fid: Fid) -> (u64, u64) {
    (fid.seq, u64::from(fid.oid) | u64::from(fid.ver) << 32)
}

/// The parts of a layout that have objects.
fn plain(layout: &LovEa) -> Vec<&LovMd> {
    match layout {
        LovEa::Plain(plain) => vec![plain],
        LovEa::Composite(comp) => comp.components.iter().map(|part| &part.layout).collect(),
        LovEa::Foreign(_) => Vec::new(),
    }
}

/// A number as debug texts have it.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The numbers of a FID or a resource name.
fn names(text: &str) -> Option<Vec<u64>> {
    let inner = text.strip_prefix('[')?;
    let (inner, _) = inner.split_once(']')?;
    let numbers = inner.split(':').map(number).collect::<Option<Vec<_>>>()?;
    (numbers.len() >= 3).then_some(numbers)
}
