//! Root squash: the superuser of clients that are not trusted so far is somebody else here.

use parking_lot::RwLock;
use sheen_types::Nid;
use sheen_types::access::RootSquash;
use sheen_wire::md::MdtBody;
use sheen_wire::messages::Request;

use crate::Mdt;

/// No supplementary group.
const NO_GROUP: u32 = u32::MAX;

/// The rule of one MDT.
#[derive(Debug, Default)]
pub(crate) struct Squash(RwLock<RootSquash>);

/// Where a request says who asks.
struct Identity<'a> {
    uid: &'a mut u32,
    gid: &'a mut u32,
    capabilities: &'a mut u32,
    groups: [Option<&'a mut u32>; 2],
}

impl Mdt {
    /// Whom root is taken for, and where not.
    #[must_use]
    pub fn root_squash(&self) -> RootSquash {
        self.squash.0.read().clone()
    }

    /// Changes it by `change`; requests under way are not concerned.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_root_squash<E>(
        &self,
        change: impl FnOnce(&mut RootSquash) -> Result<(), E>,
    ) -> Result<(), E> {
        change(&mut self.squash.0.write())
    }
}

impl Squash {
    /// Makes whoever asks as root on a client that is not trusted so far somebody else, without
    /// capabilities and groups, before anything looks at the request.
    pub(crate) fn apply(&self, client: Nid, request: &mut Request) {
        let Some((uid, gid)) = self.0.read().identity(client) else { return };
        let Some(identity) = identity(request) else { return };
        if *identity.uid != 0 {
            return;
        }
        (*identity.uid, *identity.gid) = (uid, gid);
        *identity.capabilities = 0;
        for group in identity.groups.into_iter().flatten() {
            *group = NO_GROUP;
        }
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

/// Who asks, in every request by which a right is judged or an owner is set.
fn identity(request: &mut Request) -> Option<Identity<'_>> {
    match request {
        Request::MdsGetattr(request) => of_body(&mut request.mdt_body),
        Request::MdsGetattrName(request) => of_body(&mut request.mdt_body),
        Request::MdsGetxattr(request) => of_body(&mut request.mdt_body),
        Request::MdsReadpage(request) => of_body(&mut request.mdt_body),
        Request::MdsSwapLayouts(request) => of_body(&mut request.mdt_body),
        Request::LdlmIntentGetattr(request) => of_body(&mut request.mdt_body),
        Request::LdlmIntentGetxattr(request) => of_body(&mut request.mdt_body),
        Request::LdlmIntentOpen(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintOpen(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintCreate(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintCreateSym(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintLink(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintUnlink(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintRename(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintSetxattr(request) => of_record!(request.rec_reint, suppgid1, suppgid2),
        Request::MdsReintSetattr(request) => of_record!(request.rec_reint, suppgid),
        _ => None,
    }
}
