//! A disk that fails some of its jobs.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_store_mem::Errors;
use sheen_target::testing::TestWorld;
use sheen_types::Fid;
use sheen_wire::md::MdsOpenFlags;
use sheen_wire::messages::MdsDisconnect;

use super::harness::{Server, run};

const ROOT: Fid = Fid::ROOT;
const WELL: Errors = Errors { reads: 0, changes: 0 };

#[test]
fn a_file_whose_open_fails_is_not_open() {
    let world = TestWorld::new(61);
    let inner = world.clone();
    run(
        async move {
            let errors = Arc::new(Mutex::new(WELL));
            let server = Server::start_flaky(&inner, Arc::clone(&errors)).await;
            let client = server.client("client").await;
            let made = client.create(ROOT, "f").await.unwrap();
            client.close(&made).await.unwrap();
            let mut failed = 0;
            for number in 0..300 {
                *errors.lock() = Errors { reads: 8, changes: 0 };
                let opened = match number % 3 {
                    0 => client.create(ROOT, &format!("f{number}")).await,
                    1 => client.open(ROOT, "f", MdsOpenFlags::WRITE).await,
                    _ => client.open(ROOT, "f", MdsOpenFlags::READ | MdsOpenFlags::LOCK).await,
                };
                *errors.lock() = WELL;
                match opened {
                    Ok(opened) => client.close(&opened).await.unwrap(),
                    Err(_) => failed += 1,
                }
            }
            assert!((100..290).contains(&failed), "{failed} of 300 failed");
            assert_eq!(server.mdt.open_count(), 0);
        },
        &world,
    );
}

#[test]
fn an_orphan_that_could_not_be_destroyed_goes_later() {
    let world = TestWorld::new(62);
    let inner = world.clone();
    run(
        async move {
            let errors = Arc::new(Mutex::new(WELL));
            let server = Server::start_flaky(&inner, Arc::clone(&errors)).await;
            let (client, other) = (server.client("client").await, server.client("other").await);
            let mut opened = Vec::new();
            for name in ["closed", "left"] {
                let by = if name == "left" { &other } else { &client };
                opened.push(by.create(ROOT, name).await.unwrap());
                client.unlink(ROOT, name).await.unwrap();
            }
            *errors.lock() = Errors { reads: 0, changes: 1 };
            assert!(client.close(&opened[0]).await.is_err());
            other.inner.call(MdsDisconnect::default()).await;
            client.wait(&inner, 30).await;
            assert_eq!(server.mdt.open_count(), 0);
            assert_eq!(server.check().orphans.len(), 2, "the disk fails still");
            *errors.lock() = WELL;
            client.wait(&inner, 300).await;
            assert_eq!(server.check().orphans, []);
        },
        &world,
    );
}
