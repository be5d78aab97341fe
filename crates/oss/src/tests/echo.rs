//! Surveys: their objects, that they count, and that nothing of them is left.

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::MemOptions;
use sheen_types::{Errno, Fid, fid_seq};

use super::harness::with_ost;
use crate::{EchoWorker, echo_clean, is_survey, list_objects};

#[test]
fn a_survey_writes_and_reads_objects_of_its_own() {
    with_ost(MemOptions::default(), |server| async move {
        let target = server.node.target.clone();
        let before = list_objects(&*server.store).expect("a list").len();
        let first = server.ost.echo_objects(&target, 700).await.expect("objects");
        assert_eq!(first, 1);
        let worker = EchoWorker::new(&target).expect("a worker");
        let data = Bytes::from(vec![7; 8192]);
        worker.write(first + 699, 4096, data.clone()).await.expect("written");
        assert_eq!(worker.read(first + 699, 4096, 8192).await, Ok(data));
        assert_eq!(worker.read(first + 699, 8192, 8192).await.map(|data| data.len()), Ok(4096));
        let missing = worker.write(first + 700, 0, Bytes::from(vec![1; 4096])).await;
        assert_eq!(missing, Err(Errno::ENOENT));
        server.ost.echo_sync(&target, first, 700).await.expect("durable");
        let samples = target.samples();
        let line = |name: &str| samples.iter().find(|samples| samples.line.name == name);
        let written = line("write_bytes").map(|samples| (samples.count, samples.sum));
        assert_eq!(written, Some((1, 8192)));
        assert_eq!(line("read_bytes").map(|samples| samples.sum), Some(8192 + 4096));
        assert_eq!(target.exports().len(), 1, "only the maker of objects is a client");
        worker.disconnect().await;
        assert_eq!(echo_clean(&target).await, Ok(700));
        let left = list_objects(&*server.store).expect("a list");
        assert_eq!(left.len(), before);
        assert!(!left.iter().any(|object| is_survey(object.fid)));
        let second = server.ost.echo_objects(&target, 1).await.expect("an object");
        assert_eq!(second, 701, "numbers are not used again");
        let object = server.store.attributes(Fid::new(fid_seq::ECHO, 701));
        assert_eq!(object.map(|attributes| attributes.size), Ok(0));
    });
}
