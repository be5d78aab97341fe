//! Callbacks that a client refuses because it does not take the sender for its target (`ENOTCONN`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sheen_rpc::RpcError;
use sheen_types::{Errno, InodeBits, LockMode};
use sheen_wire::messages::ObdPing;

use super::{INODE, inode_lock, lock_handle, manual_store, start};
use crate::testing::TestWorld;

#[test]
fn a_client_that_goes_on_refusing_callbacks_is_evicted_before_its_lock_is_granted() {
    let world = TestWorld::new(21);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let one = node.connect("one").await;
        one.call(inode_lock(LockMode::Ex, 0x11)).await;
        one.on_callback(Box::new(|_| Some(Err(RpcError::Errno(Errno::ENOTCONN)))));
        let begin = node.target.now();
        let guard = node.target.lock_inode(INODE, InodeBits::LOOKUP, LockMode::Pr).await;
        let waited = node.target.now().since(begin);
        assert_eq!(one.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        assert!(waited >= Duration::from_secs(20), "it might have gone on: {waited:?}");
        assert!(guard.is_ok());
    });
}

#[test]
fn a_callback_that_is_refused_once_is_sent_again() {
    let world = TestWorld::new(22);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let one = node.connect("one").await;
        let lock = lock_handle(&one.call(inode_lock(LockMode::Ex, 0x11)).await);
        let is_refused = AtomicBool::new(false);
        one.on_callback(Box::new(move |_| {
            let again = is_refused.swap(true, Ordering::AcqRel);
            (!again).then_some(Err(RpcError::Errno(Errno::ENOTCONN)))
        }));
        let (holder, time) = (one.clone(), world.clone());
        let cancels = async move {
            let mut callbacks = 0;
            while callbacks < 2 {
                time.sleep(Duration::from_millis(100)).await;
                callbacks += holder.callbacks().len();
            }
            holder.cancel(&[lock]).await;
        };
        world.world().tasks.spawn("the holder", Box::pin(cancels));
        let begin = node.target.now();
        let guard = node.target.lock_inode(INODE, InodeBits::LOOKUP, LockMode::Pr).await;
        let waited = node.target.now().since(begin);
        assert!(waited >= Duration::from_secs(1), "not before it was cancelled: {waited:?}");
        assert!(guard.is_ok());
        assert_eq!(one.call(ObdPing::default()).await.errno(), None, "it is not evicted");
    });
}
