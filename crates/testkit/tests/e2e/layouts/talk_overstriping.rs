//! The worked examples of the talk "Overstriping: Extracting Maximum Shared File Performance" (LUG 2019),
//! each on a mount: the layout as asked, all stripes written by one mount and read by another.

use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Outcome, ensure};

use super::facts::{END, Part, compare, open, parts, run, shape, write};

const LIMIT: Duration = Duration::from_secs(300);
const SEED: u64 = 2019;
const STRIPE: u64 = 64 << 10;

/// Makes `name` with `options`, writes twice over all stripes and a bit, reads it back elsewhere.
fn overstriped(cluster: &Cluster, options: &str, name: &str, count: u32) -> Outcome<Part> {
    run(cluster, &format!("lfs setstripe -S {STRIPE} {options} @{name}"))?;
    let all = 2 * u64::from(count) * STRIPE;
    let file = open(&cluster.mnt().join(name))?;
    // Every second stripe first: the objects do not come in their order.
    let stripes = || (0..all).step_by(STRIPE as usize);
    for stripe in stripes().step_by(2).chain(stripes().skip(1).step_by(2)) {
        write(&file, SEED, stripe, STRIPE)?;
    }
    let size = all + 1000;
    write(&file, SEED, all, 1000)?;
    drop(file);
    let parts = parts(cluster, name)?;
    let facts = shape(&parts);
    let wanted = [(0, END, "raid0,overstriped", i64::from(count))];
    ensure(facts == wanted, || format!("{options}: {facts:?} instead of {wanted:?}"))?;
    parts[0].must_be_distinct()?;
    compare(&cluster.mount_again()?.join(name), SEED, size, &[(0, size)])?;
    Ok(parts[0].clone())
}

/// `-C 600`: 150 on each of four OSTs.
#[test]
fn six_hundred_stripes_on_four_osts() {
    scene("talk-600-stripes", 4, LIMIT, |cluster| {
        let part = overstriped(cluster, "-C 600", "f", 600)?;
        ensure((0..4).all(|ost| part.on(ost) == 150), || "not evenly spread".to_owned())?;
        same_after_restart(cluster)
    });
}

/// `-C 32 -p 4_ost_pool`: eight on each OST of the pool, none on other OSTs.
#[test]
fn thirty_two_stripes_in_a_pool_of_four_osts() {
    scene("talk-pool-stripes", 6, LIMIT, |cluster| {
        run(cluster, "lctl pool_new sheen.4_ost_pool")?;
        run(cluster, "lctl pool_add sheen.4_ost_pool OST[1-4]")?;
        let part = overstriped(cluster, "-C 32 -p 4_ost_pool", "f", 32)?;
        let spread: Vec<_> = (0..6).map(|ost| part.on(ost)).collect();
        ensure(spread == [0, 8, 8, 8, 8, 0], || format!("{spread:?}"))?;
        let pool = run(cluster, "lfs getstripe -p @f")?;
        ensure(pool.trim() == "4_ost_pool", || pool)?;
        same_after_restart(cluster)
    });
}

/// `-o 2,3,2,3,2,3,2,3`: exactly these, in this order.
#[test]
fn stripes_go_round_two_osts_four_times() {
    scene("talk-listed-stripes", 4, LIMIT, |cluster| {
        let part = overstriped(cluster, "-o 2,3,2,3,2,3,2,3", "f", 8)?;
        let osts: Vec<_> = part.objects.iter().map(|(ost, _)| *ost).collect();
        ensure(osts == [2, 3, 2, 3, 2, 3, 2, 3], || format!("{osts:?}"))?;
        same_after_restart(cluster)
    });
}
