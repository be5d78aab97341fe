//! What a request is about, for lines of the log.

use sheen_types::Fid;
use sheen_wire::ldlm::{LdlmRequest, LockType};
use sheen_wire::messages::Request;
use sheen_wire::ost::OstBody;

/// The FID that a request names first: of an inode, of a directory whose names it uses, or of an object. `None` for
/// requests that name none. An object of a group of old is called as on OST0000, for a request does not say on which.
#[must_use]
pub fn subject_of(request: &Request) -> Option<Fid> {
    of_mdt(request)
        .or_else(|| of_lock(request))
        .or_else(|| of_ost(request))
        .filter(|fid| *fid != Fid::default())
}

fn of_mdt(request: &Request) -> Option<Fid> {
    Some(match request {
        Request::MdsGetattr(it) => it.mdt_body.fid1,
        Request::MdsGetattrName(it) => it.mdt_body.fid1,
        Request::MdsGetxattr(it) => it.mdt_body.fid1,
        Request::MdsSync(it) => it.mdt_body.fid1,
        Request::MdsReadpage(it) => it.mdt_body.fid1,
        Request::MdsSwapLayouts(it) => it.mdt_body.fid1,
        Request::MdsHsmStateGet(it) => it.mdt_body.fid1,
        Request::MdsHsmStateSet(it) => it.mdt_body.fid1,
        Request::MdsHsmDataVersion(it) => it.mdt_body.fid1,
        Request::MdsClose(it) => it.rec_reint.fid,
        Request::MdsCloseIntent(it) => it.rec_reint.fid,
        Request::MdsReintSetattr(it) => it.rec_reint.fid,
        Request::MdsReintCreateSym(it) => it.rec_reint.fid1,
        Request::MdsReintCreate(it) => it.rec_reint.fid1,
        Request::MdsReintOpen(it) => it.rec_reint.fid1,
        Request::MdsReintLink(it) => it.rec_reint.fid1,
        Request::MdsReintUnlink(it) => it.rec_reint.fid1,
        Request::MdsReintRmentry(it) => it.rec_reint.fid1,
        Request::MdsReintRename(it) => it.rec_reint.fid1,
        Request::MdsReintMigrate(it) => it.rec_reint.fid1,
        Request::MdsReintSetxattr(it) => it.rec_reint.fid,
        Request::MdsReintResync(it) => it.rec_reint.fid,
        _ => return None,
    })
}

fn of_lock(request: &Request) -> Option<Fid> {
    let resource = |lock: &LdlmRequest| {
        let resource = &lock.desc.resource;
        // A plain lock is on a name: of a configuration, say.
        let is_named = resource.kind == LockType::PLAIN;
        if is_named { Fid::default() } else { resource.name.fid() }
    };
    Some(match request {
        Request::LdlmIntentOpen(it) => it.rec_reint.fid1,
        Request::LdlmIntentCreate(it) => it.rec_reint.fid1,
        Request::LdlmIntentGetattr(it) => it.mdt_body.fid1,
        Request::LdlmIntentGetxattr(it) => it.mdt_body.fid1,
        Request::LdlmIntentLayout(it) => resource(&it.dlm_req),
        Request::LdlmIntentBasic(it) => resource(&it.dlm_req),
        Request::LdlmEnqueue(it) => resource(&it.dlm_req),
        Request::LdlmConvert(it) => resource(&it.dlm_req),
        Request::LdlmCancel(it) => resource(&it.dlm_req),
        Request::LdlmBlCallback(it) => resource(&it.dlm_req),
        Request::LdlmCpCallback(it) => resource(&it.dlm_req),
        Request::LdlmGlCallback(it) => resource(&it.dlm_req),
        _ => return None,
    })
}

fn of_ost(request: &Request) -> Option<Fid> {
    let object = |body: &OstBody| body.oa.oi.fid(0);
    match request {
        Request::OstGetattr(it) => object(&it.ost_body),
        Request::OstSetattr(it) => object(&it.ost_body),
        Request::OstDestroy(it) => object(&it.ost_body),
        Request::OstPunch(it) => object(&it.ost_body),
        Request::OstFallocate(it) => object(&it.ost_body),
        Request::OstSeek(it) => object(&it.ost_body),
        Request::OstSync(it) => object(&it.ost_body),
        Request::OstRead(it) => object(&it.ost_body),
        Request::OstWrite(it) => object(&it.ost_body),
        Request::OstLadvise(it) => object(&it.ost_body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::ResourceName;
    use sheen_wire::messages::{LdlmEnqueue, MdsClose, MdsGetattr, ObdPing, OstWrite};
    use sheen_wire::ost::OstId;

    use super::*;

    #[test]
    fn a_request_is_about_the_inode_object_or_resource_that_it_names() {
        let fid = Fid::new(0x2_0000_0401, 7);
        let mut getattr = MdsGetattr::default();
        getattr.mdt_body.fid1 = fid;
        let mut close = MdsClose::default();
        close.rec_reint.fid = fid;
        let mut enqueue = LdlmEnqueue::default();
        enqueue.dlm_req.desc.resource.name = ResourceName::of_fid(fid);
        enqueue.dlm_req.desc.resource.kind = LockType::IBITS;
        let mut write = OstWrite::default();
        write.ost_body.oa.oi = OstId::of_fid(fid);
        let all: [Request; 4] = [getattr.into(), close.into(), enqueue.into(), write.into()];
        assert!(all.iter().all(|request| subject_of(request) == Some(fid)));
        assert_eq!(subject_of(&ObdPing::default().into()), None);
        assert_eq!(subject_of(&LdlmEnqueue::default().into()), None, "no resource");
        let mut of_name = LdlmEnqueue::default();
        of_name.dlm_req.desc.resource.name = ResourceName([0x3370, 0, 0, 0]);
        of_name.dlm_req.desc.resource.kind = LockType::PLAIN;
        assert_eq!(subject_of(&of_name.into()), None, "a file system's name");
    }
}
