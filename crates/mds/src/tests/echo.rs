//! Surveys: what they make, that they count, and that nothing of them is left.

use sheen_store::Store;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};

use super::harness::{Server, run};
use crate::EchoWorker;

/// How often a line of the statistics was counted.
fn counted(server: &Server, name: &str) -> u64 {
    let samples = server.node.target.samples();
    samples.iter().find(|samples| samples.line.name == name).map_or(0, |samples| samples.count)
}

#[test]
fn a_survey_makes_finds_and_removes_files_that_no_client_sees() {
    let world = TestWorld::new(1);
    let inner = world.clone();
    let test = async move {
        let server = Server::start(&inner, 2).await;
        let target = server.node.target.clone();
        let made = server.mdt.echo_directories(&target, 2).await.expect("directories");
        assert_eq!(made.len(), 2);
        let mut worker = EchoWorker::new(&server.mdt, &target).expect("a worker");
        for number in 2..7 {
            worker.create(made[1], number, 2).await.expect("a file");
            worker.setxattr(made[1], number).await.expect("an attribute");
            worker.getattr(made[1], number).await.expect("attributes");
        }
        assert_eq!(worker.create(made[1], 3, 0).await, Err(Errno::EEXIST));
        assert_eq!(worker.setxattr(made[1], 3).await, Err(Errno::EEXIST), "it has it already");
        assert_eq!(worker.lookup(made[0], 3), Err(Errno::ENOENT), "it is in the other one");
        let found = worker.lookup(made[1], 3).expect("a file");
        assert!(server.store.xattr(found, "user.test1").expect("there").is_some());
        let report = server.check();
        assert_eq!((report.survey, report.objects.len()), (2 + 5, 10));
        worker.destroy(made[1], 3).await.expect("removed");
        assert_eq!(worker.destroy(made[1], 3).await, Err(Errno::ENOENT));
        worker.disconnect().await;
        for (name, wanted) in [("mknod", 5), ("getattr", 6), ("unlink", 2)] {
            assert_eq!(counted(&server, name), wanted, "{name}");
        }
        assert_eq!(server.mdt.echo_clean(&target).await, Ok(4));
        let report = server.check();
        assert_eq!((report.survey, report.objects.len(), report.inodes), (0, 0, 1));
        assert!(target.exports().is_empty(), "no client was seen");
    };
    run(test, &world);
}

#[test]
fn what_a_dead_survey_left_goes_at_the_next_start() {
    let world = TestWorld::new(2);
    let inner = world.clone();
    let test = async move {
        let server = Server::start(&inner, 1).await;
        let target = server.node.target.clone();
        let made = server.mdt.echo_directories(&target, 1).await.expect("a directory");
        let mut worker = EchoWorker::new(&server.mdt, &target).expect("a worker");
        for number in 0..100 {
            worker.create(made[0], number, -1).await.expect("a file");
        }
        assert_eq!(server.check().survey, 101);
        let (store, osts) = (server.store.clone(), server.osts.clone());
        let again = Server::start_on(&inner, store, osts).await;
        inner.settle().await;
        let report = again.check();
        assert_eq!((report.survey, report.inodes), (0, 1));
        assert_eq!(again.store.attributes(made[0]).ok(), None::<sheen_store::Attributes>);
        assert_ne!(made[0], Fid::ROOT);
    };
    run(test, &world);
}
