//! What is believed of a caller that a client names: root squash, and the capabilities of users
//! (Lustre: `mdt_root_squash`, `mdt_enable_cap_mask`).
//!
//! What always holds: an operation sees no capability of a user other than root that the mask does
//! not name, and no root of a client that is squashed. Both are settled before anything looks at the
//! request, also where it is answered again. Cost: a match
//! on the request's kind and an atomic read; for root, a lock that only operators write.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use sheen_types::access::{CapabilityMask, RootSquash};
use sheen_types::{Errno, Nid};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::Request;

use crate::Mdt;

/// No supplementary group.
const NO_GROUP: u32 = u32::MAX;

/// The rule of one MDT.
#[derive(Debug, Default)]
pub(crate) struct Squash {
    root: RwLock<RootSquash>,
    /// Bits of [`CapabilityMask`].
    believed: AtomicU32,
}

/// Where a request names its caller.
struct Identity<'a> {
    uid: &'a mut u32,
    gid: &'a mut u32,
    capabilities: &'a mut u32,
    groups: [Option<&'a mut u32>; 2],
}

impl Mdt {
    /// The user that root becomes, and the nodes where it does not.
    #[must_use]
    pub fn root_squash(&self) -> RootSquash {
        self.squash.root.read().clone()
    }

    /// Changes it by `change`; requests under way are not concerned.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_root_squash<E>(
        &self,
        change: impl FnOnce(&mut RootSquash) -> Result<(), E>,
    ) -> Result<(), E> {
        change(&mut self.squash.root.write())
    }

    /// Capabilities that users other than root keep (`enable_cap_mask`): none at first.
    #[must_use]
    pub fn capability_mask(&self) -> CapabilityMask {
        CapabilityMask::of_bits(self.squash.believed.load(Ordering::Relaxed))
    }

    /// Changes them as [`CapabilityMask::changed`] says; requests under way are not concerned.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a name that is none.
    pub fn set_capability_mask(&self, text: &str) -> Result<(), Errno> {
        let mask = self.capability_mask().changed(text)?;
        self.squash.believed.store(mask.bits(), Ordering::Relaxed);
        Ok(())
    }
}

impl Squash {
    /// Makes root of a client that is not trusted so far another user, without capabilities and
    /// groups; then takes from every user but root the capabilities that the client claims and the
    /// mask does not name. A `client` whose address is not known for sure is never trusted.
    pub(crate) fn apply(&self, client: Option<Nid>, request: &mut Request) {
        let Some(identity) = identity(request) else { return };
        if *identity.uid == 0 {
            let client = client.unwrap_or(Nid::ANY);
            let Some((uid, gid)) = self.root.read().identity(client) else { return };
            (*identity.uid, *identity.gid) = (uid, gid);
            *identity.capabilities = 0;
            for group in identity.groups.into_iter().flatten() {
                *group = NO_GROUP;
            }
        }
        *identity.capabilities &= self.believed.load(Ordering::Relaxed);
    }
}

macro_rules! of_record {
    ($record:expr, $($group:ident),+) => {{
        let record = &mut $record;
        let mut groups = [$(Some(&mut record.$group)),+].into_iter();
        Some(Identity {
            uid: &mut record.fsuid,
            gid: &mut record.fsgid,
            capabilities: &mut record.cap,
            groups: [groups.next().flatten(), groups.next().flatten()],
        })
    }};
}

fn of_body(body: &mut MdtBody) -> Option<Identity<'_>> {
    Some(Identity {
        uid: &mut body.fsuid,
        gid: &mut body.fsgid,
        capabilities: &mut body.capability,
        groups: [Some(&mut body.suppgid), None],
    })
}

/// The caller, in every request by which a right is judged or an owner is set.
fn identity(request: &mut Request) -> Option<Identity<'_>> {
    match request {
        Request::MdsGetattr(request) => of_body(&mut request.mdt_body),
        Request::MdsGetattrName(request) => of_body(&mut request.mdt_body),
        Request::MdsGetxattr(request) => of_body(&mut request.mdt_body),
        Request::MdsReadpage(request) => of_body(&mut request.mdt_body),
        Request::MdsRmfid(request) => of_body(&mut request.mdt_body),
        Request::MdsSwapLayouts(request) => of_body(&mut request.mdt_body),
        Request::MdsHsmStateSet(request) => of_body(&mut request.mdt_body),
        Request::LdlmIntentGetattr(request) => of_body(&mut request.mdt_body),
        Request::LdlmIntentGetxattr(request) => of_body(&mut request.mdt_body),
        Request::LdlmIntentOpen(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintOpen(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintCreate(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintCreateSym(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintLink(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintUnlink(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintRmentry(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintRename(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintMigrate(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintSetxattr(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintSetattr(request) => of_record!(request.rec_reint, suppgid),
        Request::MdsCloseIntent(request) => of_record!(request.rec_reint, suppgid),
        _ => None,
    }
}
