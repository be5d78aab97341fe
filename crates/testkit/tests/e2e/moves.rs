//! Files that move to other layouts while they are in use.

use std::path::Path;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{disturbed, same_after_restart, scene, seed};
use sheen_testkit::workload::{Size, moves};
use sheen_testkit::{Outcome, ensure};

use crate::kills::LIMIT;

/// `lfs migrate` of the file.
fn migrate(cluster: &Cluster, options: &[&str], path: &Path) -> Outcome {
    let path = path.display().to_string();
    let command = [&["lfs", "migrate"], options, &[&path]].concat();
    let finished = cluster.run(&command)?;
    ensure(finished.status.success(), || {
        let (options, status) = (options.join(" "), finished.status);
        format!("lfs migrate {options} {path}: {status}\n{}", finished.output)
    })
}

#[test]
fn a_file_of_two_mounts_keeps_its_bytes_wherever_it_moves() {
    scene("moving", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let steps = Size::asked().of(20, 250, 3000);
        let mover = |options: &[&str], path: &Path| migrate(cluster, options, path);
        moves::run_between([&cluster.mnt(), &other], "f", seed(), steps, mover)?;
        same_after_restart(cluster)
    });
}

/// Only in a long run: not shown to hold in each (docs/COMPAT.md).
#[test]
fn two_mounts_use_a_file_that_moves() {
    if Size::asked() != Size::Long {
        return eprintln!("only with SHEEN_TEST_LONG");
    }
    scene("moving-beside", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let mover = |options: &[&str], path: &Path| migrate(cluster, options, path);
        let moved = moves::run_beside([&cluster.mnt(), &other], "f", seed(), 3000, mover)?;
        ensure(moved > 5, || format!("only {moved} moves"))?;
        same_after_restart(cluster)
    });
}

/// Old layout or new, never a mixture, whenever the servers die. Only in a long run, as the one above.
#[test]
fn files_move_while_servers_die() {
    if Size::asked() != Size::Long {
        return eprintln!("only with SHEEN_TEST_LONG");
    }
    scene("moving-kill", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let seed = seed();
        disturbed(cluster, 20, Duration::from_secs(2), |top| {
            let mover = |options: &[&str], path: &Path| {
                // A server that forgets who holds the file ends the move.
                let _ = migrate(cluster, options, path);
                Ok(())
            };
            moves::run_beside([top, &other], "f", seed, 20_000, mover).map(|_| ())
        })
        .map_err(|fault| format!("seed {seed}: {fault}"))?;
        same_after_restart(cluster)
    });
}
