//! What else an [`Obdo`] says: fields that mean in some requests what has no field of its own, by Lustre's names for
//! that (`#define o_dirty o_blocks` and the like in `lustre_idl.h`). No other code knows which field that is.

use sheen_types::{Fallocate, Seek};

use super::{Obdo, ObdoFlags};
use crate::checksum::Checksum;
use crate::md::Valid;

/// What a client says with its reads and writes about its grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantReport {
    /// `o_grant`: bytes that it has; with [`ObdoFlags::SHRINK_GRANT`], that it returns.
    pub available: u64,
    /// `o_dirty`: bytes that it has accepted and not sent yet.
    pub dirty: u64,
    /// `o_undirty`: bytes that it would like to be able to keep dirty.
    pub wanted: u32,
    /// `o_grant_used`: bytes that this write takes out of it; 0 where the client does not say.
    pub used: u64,
    /// `o_dropped`: bytes that it has lost.
    pub lost: u32,
}

impl Obdo {
    /// Whether the flag is set, and flags count.
    #[must_use]
    pub fn has_flag(&self, flag: ObdoFlags) -> bool {
        self.valid.contains(Valid::FLAGS) && self.flags.contains(flag)
    }

    /// What a request says about the client's grant, if it says that.
    #[must_use]
    pub fn grant_report(&self) -> Option<GrantReport> {
        self.valid.contains(Valid::GRANT).then_some(GrantReport {
            available: self.grant,
            dirty: self.blocks,
            wanted: self.mode,
            used: self.data_version,
            lost: self.misc,
        })
    }

    /// Reports the grant in a request.
    pub fn report_grant(&mut self, report: GrantReport) {
        self.valid |= Valid::GRANT | Valid::BLOCKS;
        let GrantReport { available, dirty, wanted, used, lost } = report;
        (self.grant, self.blocks, self.mode) = (available, dirty, wanted);
        (self.data_version, self.misc) = (used, lost);
    }

    /// The grant that an answer adds to what the client has.
    #[must_use]
    pub fn grant_gained(&self) -> u64 {
        if self.valid.contains(Valid::GRANT) { self.grant } else { 0 }
    }

    /// `o_cksum`: the checksum of the bulk, if there is one.
    #[must_use]
    pub fn checksum(&self) -> Option<u32> {
        self.valid.contains(Valid::CKSUM).then_some(self.nlink)
    }

    /// Sets the checksum of the bulk, of this kind.
    pub fn set_checksum(&mut self, kind: Checksum, sum: u32) {
        self.ask_for_checksum(kind);
        self.answer_checksum(sum);
    }

    /// The same of the kind that is named already.
    pub fn answer_checksum(&mut self, sum: u32) {
        self.nlink = sum;
    }

    /// Asks that the answer to a read have a checksum of this kind.
    pub fn ask_for_checksum(&mut self, kind: Checksum) {
        self.valid |= Valid::CKSUM | Valid::FLAGS;
        self.flags |= kind.flag();
    }

    /// The bytes that OST_PUNCH frees, OST_SYNC makes durable and OST_FALLOCATE is about: the first, and which is
    /// the first behind them, or [`sheen_types::Extent::EOF`].
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        (self.size, self.blocks)
    }

    /// Sets those.
    pub fn set_range(&mut self, start: u64, end: u64) {
        self.valid |= Valid::SIZE | Valid::BLOCKS;
        (self.size, self.blocks) = (start, end);
    }

    /// `o_falloc_mode`: what OST_FALLOCATE does, as `fallocate(2)` says it.
    #[must_use]
    pub fn fallocate_mode(&self) -> u32 {
        self.nlink
    }

    /// Sets what an allocation asks for.
    pub fn set_fallocate(&mut self, what: Fallocate) {
        self.nlink = what.mode();
    }

    /// What OST_SEEK looks for, from the byte `size` on; `None` if that is neither data nor a hole.
    #[must_use]
    pub fn seek(&self) -> Option<Seek> {
        Seek::of_whence(self.mode)
    }

    /// Sets what a seek looks for, and from which byte.
    pub fn set_seek(&mut self, what: Seek, from: u64) {
        self.valid |= Valid::SIZE | Valid::MODE;
        (self.mode, self.size) = (what as u32, from);
    }

    /// How many objects, this and the next ones, OST_DESTROY is about, if it says that.
    #[must_use]
    pub fn object_count(&self) -> Option<u32> {
        self.valid.contains(Valid::OBJCOUNT).then_some(self.misc)
    }

    /// Sets how many objects are meant.
    pub fn set_object_count(&mut self, count: u32) {
        self.valid |= Valid::OBJCOUNT;
        self.misc = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_reported_in_the_fields_that_lustre_has_for_it() {
        let mut oa = Obdo::default();
        assert_eq!(oa.grant_report(), None, "nothing is said");
        let report = GrantReport { available: 1, dirty: 2, wanted: 3, used: 4, lost: 5 };
        oa.report_grant(report);
        assert_eq!(oa.grant_report(), Some(report));
        let said = (oa.grant, oa.blocks, oa.mode, oa.data_version, oa.misc);
        assert_eq!((said, oa.valid), ((1, 2, 3, 4, 5), Valid::GRANT | Valid::BLOCKS));
    }

    #[test]
    fn a_field_counts_only_where_the_message_says_so() {
        let oa = Obdo { flags: ObdoFlags::SRVLOCK, nlink: 7, misc: 7, ..Obdo::default() };
        assert!(!oa.has_flag(ObdoFlags::SRVLOCK));
        assert_eq!((oa.checksum(), oa.object_count()), (None, None));
        let mut said = oa.clone();
        said.set_checksum(Checksum::Crc32c, 9);
        said.set_object_count(3);
        assert_eq!((said.checksum(), said.object_count()), (Some(9), Some(3)));
        assert!(said.has_flag(ObdoFlags::SRVLOCK) && said.has_flag(ObdoFlags::CKSUM_CRC32C));
        let seek = |mode| Obdo { mode, ..Obdo::default() }.seek();
        assert_eq!([2, 3, 4, 5].map(seek), [None, Some(Seek::Data), Some(Seek::Hole), None]);
    }
}
