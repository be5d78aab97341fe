//! How full the file system is: one `MDS_STATFS` and one `OST_STATFS` per OST, all at once.

use std::sync::Arc;

use sheen_rpc::{Call, CallKind, Channel};
use sheen_types::Errno;
use sheen_wire::md::ObdStatfs;
use sheen_wire::messages::{MdsStatfs, OstStatfs};

use crate::call;

/// One target's answer.
#[derive(Clone, Debug)]
pub(crate) struct TargetStat {
    /// Its name, `FSNAME-OST0000`.
    pub(crate) name: String,
    /// What it says.
    pub(crate) stat: Result<ObdStatfs, Errno>,
}

/// Asks an MDT. One RPC.
pub(crate) async fn mdt_statfs(channel: Arc<dyn Channel>) -> Result<ObdStatfs, Errno> {
    let call = Call::new(MdsStatfs::default());
    call::need(call::call::<MdsStatfs>(&*channel, call).await?.reply.obd_statfs)
}

/// Asks an OST. One RPC. If `lazy`, one that is down does not hold up the answer of the others.
pub(crate) async fn ost_statfs(channel: Arc<dyn Channel>, lazy: bool) -> Result<ObdStatfs, Errno> {
    let kind = if lazy { CallKind::NoDelay } else { CallKind::Normal };
    let call = Call { kind, ..Call::new(OstStatfs::default()) };
    call::need(call::call::<OstStatfs>(&*channel, call).await?.reply.obd_statfs)
}
