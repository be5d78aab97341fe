//! The name of a change over several MDTs.

use std::fmt;

use crate::{MdtIndex, Transno};

/// Names a change over several MDTs, on all of them: by the MDT that executed the client's request, and the transaction
/// that it became there (Lustre: batchid). In order, those of one coordinator follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId {
    /// The MDT that executed the request.
    pub coordinator: MdtIndex,
    /// Its transaction there.
    pub transno: Transno,
}

impl fmt::Display for ChangeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MDT{:04x}:{}", self.coordinator, self.transno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_says_the_mdt_as_lustre_names_it() {
        let id = ChangeId { coordinator: MdtIndex(0x1f), transno: Transno(4_294_967_297) };
        assert_eq!(id.to_string(), "MDT001f:4294967297");
    }
}
