//! Who begins a change over several MDTs.

use std::sync::Arc;

use sheen_target::{Context, Target};
use sheen_types::{Errno, Uuid};

/// A client's request, which gets its answer recorded, or this MDT itself (restriper, automatic split), which no client asks
/// again.
#[derive(Clone, Copy)]
pub(crate) enum Initiator<'a> {
    /// A request.
    Request(&'a Context),
    /// This MDT, as the target that it is.
    Mdt(&'a Arc<Target>),
}

impl<'a> From<&'a Context> for Initiator<'a> {
    fn from(context: &'a Context) -> Self {
        Self::Request(context)
    }
}

impl<'a> Initiator<'a> {
    /// The target that coordinates.
    pub(crate) fn target(self) -> &'a Arc<Target> {
        match self {
            Self::Request(context) => &context.target,
            Self::Mdt(target) => target,
        }
    }

    /// The request, if it is one.
    pub(crate) fn request(self) -> Option<&'a Context> {
        match self {
            Self::Request(context) => Some(context),
            Self::Mdt(_) => None,
        }
    }

    /// Whose locks are spared where that client has agreed to it; that of no client for this MDT.
    pub(super) fn client(self) -> Uuid {
        self.request().map(|context| context.export.uuid().clone()).unwrap_or_default()
    }

    /// It ends without an answer, if it is a request.
    pub(super) fn leave_unanswered(self, errno: Errno) -> Errno {
        self.request().map_or(errno, |context| context.leave_unanswered(errno))
    }
}
