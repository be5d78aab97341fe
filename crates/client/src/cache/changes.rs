//! What this client has changed of an inode: the last transaction of each MDT that did, for those who wait until it is
//! durable. An MDT changes inodes of other MDTs, too: the directory of a name that leads to it, say.

use sheen_types::{MdtIndex, Transno};

/// The last change on each MDT. Allocates nothing where one MDT has made all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    one: (MdtIndex, Transno),
    further: Vec<(MdtIndex, Transno)>,
}

impl Changes {
    /// `mdt` has made one, or none if its number is 0.
    pub(crate) fn note(&mut self, mdt: MdtIndex, transno: Transno) {
        if transno == Transno(0) {
            return;
        }
        if self.one.1 == Transno(0) {
            self.one = (mdt, transno);
            return;
        }
        let mut all = std::iter::once(&mut self.one).chain(&mut self.further);
        match all.find(|(known, _)| *known == mdt) {
            Some((_, last)) => *last = transno.max(*last),
            None => self.further.push((mdt, transno)),
        }
    }

    /// Each MDT with its last change.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MdtIndex, Transno)> {
        let all = std::iter::once(&self.one).chain(&self.further);
        all.copied().filter(|(_, transno)| *transno != Transno(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_each_mdt_is_known() {
        let mut changes = Changes::default();
        assert_eq!(changes.iter().count(), 0);
        for (mdt, transno) in [(1, 0), (1, 7), (0, 3), (1, 5), (0, 4), (2, 1)] {
            changes.note(MdtIndex(mdt), Transno(transno));
        }
        let known: Vec<_> = changes.iter().map(|(mdt, transno)| (mdt.0, transno.0)).collect();
        assert_eq!(known, [(1, 7), (0, 4), (2, 1)]);
    }
}
