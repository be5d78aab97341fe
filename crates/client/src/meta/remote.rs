//! Inodes that are on another MDT than their name.
//!
//! A name's MDT answers with the FID alone and a lock on the name (`OBD_MD_MDS`); the inode's MDT has the rest, under a lock of
//! its own (`MDS_CROSS_REF`). What the first lock covers is the name, what the second one covers are attributes; each is
//! lost by itself.

use sheen_types::access::May;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{MdtBody, Valid};

use super::{LookupDepth, Meta};
use crate::cache::{Inode, NamePlace};
use crate::types::Credentials;

/// How often a change is sent on at most, to an MDT that another one has named. While other clients replace what is to be
/// replaced, each time by an inode of another MDT, that is as often as they are faster; Lustre's client has no limit.
pub(super) const SENT_ON_MAX: usize = 100;

/// The inode that a refusal names (`OBD_MD_MDS`): its MDT is to be asked.
pub(super) fn sent_on_to(body: Option<&MdtBody>) -> Option<Fid> {
    let body = body.filter(|body| body.valid.contains(Valid::MDS))?;
    body.fid1.is_of_mdt().then_some(body.fid1)
}

impl Meta {
    /// Asks the MDT of an inode that another MDT has named. One RPC, none while locks cover what is wanted.
    pub(super) async fn attributes_of_remote(
        &self,
        who: &Credentials,
        inode: &Inode,
        depth: LookupDepth,
    ) -> Result<(), Errno> {
        let is_known = {
            let state = inode.state();
            let for_name = depth == LookupDepth::Name && state.rights_covered();
            state.attributes_covered() || for_name
        };
        if is_known {
            return Ok(());
        }
        let group = who.group_for(inode, May::EXEC);
        let body = who.body(inode.fid, self.intent_valid() | Valid::CROSSREF, group);
        let place = NamePlace::whole(inode);
        let found = self.getattr_intent_with(who, &place, None, (depth, body)).await?;
        found.is(inode)
    }
}
