//! MDS_GETATTR that asks for the version of a file's data on the MDT (`OBD_MD_FLDATAVERSION`, Lustre's
//! `mdt_data_version_get`).

use sheen_target::{Context, Outcome};
use sheen_types::{Errno, LockMode};
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::messages::{MdsGetattr, MdsGetattrReply};
use sheen_wire::ost::{ObdoFlags, OstId};

use crate::{Mdt, dom_layout, layouts};

/// Whether a client wants to know that instead of attributes.
pub(crate) fn is_asked(request: &MdsGetattr) -> bool {
    request.mdt_body.valid.contains(Valid::DATAVERSION)
}

impl Mdt {
    /// The version; under a lock if asked, so that what clients have in their caches counts.
    ///
    /// # Errors
    /// [`Errno::EBADF`] for what is no regular file, [`Errno::ESTALE`] for one without data here, whose
    /// layout the client does not know then.
    pub(crate) async fn data_version(
        &self,
        context: &Context,
        asked: &MdtBody,
    ) -> Result<Outcome, Errno> {
        let flags = ObdoFlags(asked.flags);
        let locks = asked.valid.contains(Valid::FLAGS) && flags.contains(ObdoFlags::SRVLOCK);
        let mode = if flags.contains(ObdoFlags::FLUSH) { LockMode::Pw } else { LockMode::Pr };
        let _lock = match locks {
            true => {
                let object = OstId::of_fid(asked.fid1);
                Some(self.dom.brw.lock_all(context, object, mode).await?)
            }
            false => None,
        };
        let version = self.dom.brw.data_version(&context.target, asked.fid1);
        let inode = self.inode(asked.fid1)?;
        if !inode.is_regular() {
            return Err(Errno::EBADF);
        }
        let mut body = MdtBody { valid: Valid::DATAVERSION, version, ..MdtBody::default() };
        if let Some(layout) = self.layout(&inode)? {
            dom_layout::part_of(&layout).ok_or(Errno::ESTALE)?;
            body.layout_gen = layouts::stored(&layout)?.generation();
            body.valid |= Valid::LAYOUT_VERSION;
        }
        Ok(Outcome::ok(MdsGetattrReply { mdt_body: Some(body), ..MdsGetattrReply::default() }))
    }
}
