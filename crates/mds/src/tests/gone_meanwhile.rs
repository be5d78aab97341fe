//! What a request takes a name of another MDT for may have gone when that MDT is asked.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};

use super::harness::{REGULAR, run};
use super::over_mdts::{Scene, rename};

const ROOT: Fid = Fid::ROOT;

#[test]
fn a_name_is_removed_whose_inode_another_one_has_replaced() {
    let world = TestWorld::new(451);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let directory = scene.mkdir(1, ROOT, "d").await;
        let make = async |name| scene.clients[0].make(ROOT, name, REGULAR | 0o644).await;
        let gone = make("f").await.expect("made");
        let other = make("g").await.expect("made");
        scene.clients[0].unlink(ROOT, "f").await.expect("removed");
        scene.clients[1].link(other, directory, "x").await.expect("linked");
        let (errno, body) = scene.remove(0, (directory, "x"), gone, REGULAR).await;
        assert_eq!((errno, body.fid1, body.nlink), (None, other, 1));
        assert_eq!(scene.names(1, directory).await, [] as [&str; 0]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn many_files_replace_one_name_at_once() {
    const FILES: usize = 8;
    let world = TestWorld::new(452);
    let inner = world.clone();
    let test = async move {
        let scene = Arc::new(Scene::new(&inner, 2).await);
        let directory = scene.mkdir(1, ROOT, "d").await;
        for number in 0..=FILES {
            let name = format!("f{number}");
            scene.clients[0].make(ROOT, &name, REGULAR | 0o644).await.expect("made");
        }
        let last = format!("f{FILES}");
        scene.clients[0].rename((ROOT, &last), (directory, "x")).await.expect("moved");
        let answers = Arc::new(Mutex::new(Vec::new()));
        for number in 0..FILES {
            let (scene, answers) = (Arc::clone(&scene), Arc::clone(&answers));
            let moves = async move {
                let name = format!("f{number}");
                let answer = rename(&scene.clients[0], (ROOT, &name), (directory, "x")).await;
                answers.lock().push(answer);
            };
            inner.world().tasks.spawn("move", Box::pin(moves));
        }
        while answers.lock().len() < FILES {
            scene.clients[0].wait(&inner, 1).await;
        }
        let wanted: Vec<Result<(), (Errno, Fid)>> = vec![Ok(()); FILES];
        assert_eq!(*answers.lock(), wanted);
        assert_eq!(scene.names(0, ROOT).await, ["d"]);
        assert_eq!(scene.names(1, directory).await, ["x"]);
        scene.settle(&inner).await;
    };
    run(test, &world);
}
