//! The layout that `sheen up` gives a file system when it makes it: small files on the MDT.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{disturbed, play, same_after_restart, scene};
use sheen_workloads::{Context, Outcome, clone, ensure, plant};

const LIMIT: Duration = Duration::from_secs(300);
const EINVAL: i32 = 22;

/// Where the component that has a byte ends, and whether it is on the MDT.
fn component(cluster: &Cluster, file: &Path, byte: &str) -> Outcome<(String, bool)> {
    let path = file.to_string_lossy();
    let shown =
        cluster.must(&["lfs", "getstripe", &format!("--component-start={byte}"), "-v", &path])?;
    let end = shown.lines().find_map(|line| line.trim().strip_prefix("lcme_extent.e_end:"));
    let end = end.map(|end| end.trim().to_owned()).ok_or_else(|| format!("no end: {shown}"))?;
    Ok((end, shown.contains("lmm_pattern:       mdt")))
}

#[test]
fn files_begin_on_the_mdt_and_go_on_on_osts() {
    let options = ["--layout", "small-files"];
    let cluster =
        Cluster::start_with("first-layout", 3, &options).unwrap_or_else(|e| panic!("{e}"));
    play(&Arc::new(cluster), LIMIT, |cluster| {
        let (mnt, other) = (cluster.mnt(), cluster.mount_again()?);
        let path = mnt.join("f");
        let file = File::create(&path).context("create")?;
        let pieces = [(0, 1), (70_000, 2), (300 << 20, 3)];
        for (offset, byte) in pieces {
            file.write_all_at(&[byte; 10_000], offset).context("write")?;
        }
        for (offset, byte) in pieces {
            let mut read = [0; 10_000];
            let there = File::open(other.join("f")).context("open")?;
            there.read_exact_at(&mut read, offset).context("read")?;
            ensure(read == [byte; 10_000], || format!("other bytes at {offset}"))?;
        }
        drop(file);
        let first = component(cluster, &path, "0")?;
        ensure(first == ("65536".to_owned(), true), || format!("{first:?}"))?;
        let second = component(cluster, &path, "64K")?;
        ensure(second == ("268435456".to_owned(), false), || format!("{second:?}"))?;
        let count = cluster.must(&[
            "lfs",
            "getstripe",
            "--component-start=256M",
            "-c",
            &path.to_string_lossy(),
        ])?;
        ensure(count.trim() == "3", || format!("{count} stripes at the end"))?;

        let top = mnt.join("top");
        fs::create_dir(&top).context("mkdir")?;
        disturbed(cluster, 1, Duration::from_millis(500), |_| {
            plant::run(&top)?;
            clone::run(&top)
        })?;
        same_after_restart(cluster)
    });
}

#[test]
fn it_is_chosen_when_the_file_system_is_made() {
    scene("no-first-layout", 1, LIMIT, |cluster| {
        let beside = |name: &str| cluster.dir().with_file_name(name).to_string_lossy().into_owned();
        let up = |name: &str, more: &[&str]| {
            let (dir, mnt) = (beside(name), beside(&format!("{name}-mnt")));
            fs::create_dir_all(&mnt).context("mkdir")?;
            cluster
                .run(&[&["up", "--dir", &dir, "--mount", &mnt, "--osts", "1"][..], more].concat())
        };
        let of_new = |name: &str| {
            let path = Path::new(&beside(&format!("{name}-mnt"))).join("new");
            fs::write(&path, "x").context("write")?;
            cluster.must(&["lfs", "getstripe", &path.to_string_lossy()])
        };
        for (name, more, on_mdt) in
            [("plain-up", &[][..], true), ("sized-up", &["--device-size", "200000"][..], false)]
        {
            let done = up(name, more)?;
            ensure(done.status.success(), || done.output.clone())?;
            let shown = of_new(name)?;
            ensure(shown.contains("mdt") == on_mdt, || format!("{name}: {shown}"))?;
            let wanted = if on_mdt { "lustre" } else { "small-files" };
            let refused = up(name, &["--layout", wanted])?;
            let says = refused.output.contains("was made with --layout");
            ensure(refused.status.code() == Some(EINVAL) && says, || refused.output.clone())?;
            ensure(up(name, &[])?.status.success(), || "the same again".to_owned())?;
            cluster.must(&["down", "--dir", &beside(name)])?;
        }
        Ok(())
    });
}
