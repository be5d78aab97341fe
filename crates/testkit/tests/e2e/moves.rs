//! Files that move to other layouts while they are in use.

use std::path::Path;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{disturbed, same_after_restart, scene, seed};
use sheen_testkit::workload::{Size, moves};
use sheen_testkit::{Outcome, ensure};

use crate::kills::LIMIT;

fn steps(size: Size) -> u64 {
    size.of(50, 1500, 20_000)
}

/// `lfs migrate`; another run of it on the file is no failure.
fn migrate(cluster: &Cluster, options: &[&str], path: &Path) -> Outcome {
    let path = path.display().to_string();
    let command = [&["lfs", "migrate"], options, &[&path]].concat();
    let finished = cluster.run(&command)?;
    ensure(finished.status.success(), || {
        format!(
            "lfs migrate {} {path}: {}\n{}",
            options.join(" "),
            finished.status,
            finished.output
        )
    })
}

#[test]
fn two_mounts_use_a_file_that_moves() {
    scene("moves", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let tops = [&*cluster.mnt(), &*other];
        let size = Size::asked();
        let mover = |_: usize, options: &[&str], path: &Path| migrate(cluster, options, path);
        let moved = moves::run(tops, "f", seed(), steps(size), mover)?;
        ensure(moved > 5, || format!("only {moved} moves"))?;
        same_after_restart(cluster)
    });
}

/// Old layout or new, never a mixture, whenever the servers die.
#[test]
fn files_move_while_servers_die() {
    scene("moves-kill", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let seed = seed();
        let kills = Size::asked().of(1, 4, 20);
        disturbed(cluster, kills, Duration::from_secs(2), |top| {
            let mover = |_: usize, options: &[&str], path: &Path| {
                // A server that forgets who holds the file ends the move.
                let _ = migrate(cluster, options, path);
                Ok(())
            };
            moves::run([top, &other], "f", seed, steps(Size::asked()), mover).map(|_| ())
        })
        .map_err(|fault| format!("seed {seed}: {fault}"))?;
        same_after_restart(cluster)
    });
}
