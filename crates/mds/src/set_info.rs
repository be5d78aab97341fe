//! `MDT_SET_INFO`: what a client sends of itself by key.

use sheen_target::{Context, Outcome};
use sheen_types::Errno;
use sheen_wire::messages::MdsSetInfo;

/// A remount: whether the client is read-only from now on.
const READ_ONLY: &[u8] = b"read-only";

/// Keys that stand for what is not here are refused, as unknown ones are by Lustre.
pub(crate) fn set_info(context: &Context, request: &MdsSetInfo) -> Result<Outcome, Errno> {
    if request.setinfo_key.split(|byte| *byte == 0).next() != Some(READ_ONLY) {
        return Err(Errno::EINVAL);
    }
    let value = request.setinfo_val.first_chunk().ok_or(Errno::EFAULT)?;
    context.export.set_read_only(u32::from_le_bytes(*value) != 0);
    Ok(Outcome::default())
}
