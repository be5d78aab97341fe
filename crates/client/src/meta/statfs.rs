//! How full the file system is: one `MDS_STATFS` per MDT and one `OST_STATFS` per OST, all at once.

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

/// Asks an MDT. One RPC. If `lazy`, one that is down does not delay the answer of the rest.
pub(crate) async fn mdt_statfs(channel: Arc<dyn Channel>, lazy: bool) -> Result<ObdStatfs, Errno> {
    let kind = if lazy { CallKind::NoDelay } else { CallKind::Normal };
    let call = Call { kind, ..Call::new(MdsStatfs::default()) };
    call::need(call::call::<MdsStatfs>(&*channel, call).await?.reply.obd_statfs)
}

/// Asks an OST. One RPC. If `lazy`, one that is down does not delay the answer of the rest.
pub(crate) async fn ost_statfs(channel: Arc<dyn Channel>, lazy: bool) -> Result<ObdStatfs, Errno> {
    let kind = if lazy { CallKind::NoDelay } else { CallKind::Normal };
    let call = Call { kind, ..Call::new(OstStatfs::default()) };
    call::need(call::call::<OstStatfs>(&*channel, call).await?.reply.obd_statfs)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use sheen_rpc::{Answer, BoxFuture, ImportState, RpcError};
    use sheen_types::{Nid, Transno, Uuid, Xid};
    use sheen_wire::connect::ObdConnectData;

    use super::*;
    use crate::testing::TestWorld;

    /// An OST that is down: a statfs that is not lazy waits until it is up, as an import does.
    #[derive(Default)]
    struct Down(AtomicBool);

    impl Channel for Down {
        fn call(&self, call: Call) -> BoxFuture<'static, Result<Answer, RpcError>> {
            let is_patient = call.kind != CallKind::NoDelay;
            self.0.store(is_patient, Ordering::Relaxed);
            Box::pin(std::future::ready(Err(RpcError::Disconnected)))
        }

        fn state(&self) -> ImportState {
            ImportState::Disconn
        }

        fn connect_data(&self) -> ObdConnectData {
            ObdConnectData::default()
        }

        fn connection(&self) -> u32 {
            0
        }

        fn peer(&self) -> Nid {
            Nid::LOOPBACK
        }

        fn target_uuid(&self) -> Uuid {
            Uuid::new("fs-OST0000_UUID")
        }

        fn last_committed(&self) -> Transno {
            Transno(0)
        }

        fn release(&self, _: Xid) {}
    }

    #[test]
    fn an_ost_that_is_down_is_waited_for_unless_statfs_is_lazy() {
        for lazy in [true, false] {
            let ost = Arc::new(Down::default());
            let channel = Arc::clone(&ost) as Arc<dyn Channel>;
            let asked = TestWorld::new(1).run(async move { ost_statfs(channel, lazy).await });
            assert!(asked.is_err());
            assert_eq!(ost.0.load(Ordering::Relaxed), !lazy);
        }
    }
}
