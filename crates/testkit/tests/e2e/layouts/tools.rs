//! What the tools for layouts promise of themselves, on a mount.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const SEEN: Duration = Duration::from_secs(60);

/// `sheen WORDS`, where `@` stands for the mount.
fn run(cluster: &Cluster, line: &str) -> Outcome<String> {
    let mount = format!("{}/", cluster.mnt().display());
    let words: Vec<String> =
        line.split_whitespace().map(|word| word.replace('@', &mount)).collect();
    cluster.must(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A layout as text, without what makes it one file's.
fn shape(cluster: &Cluster, name: &str) -> Outcome<Vec<String>> {
    let text = run(cluster, &format!("lfs getstripe -y @{name}"))?;
    let own = |line: &&str| !line.contains("l_fid:") && !line.contains("layout_gen:");
    Ok(text.lines().filter(own).map(str::to_owned).collect())
}

/// What `getstripe --yaml` writes of a file, `setstripe --yaml` makes again: the same OSTs, too.
#[test]
fn templates_make_the_same_layout_again() {
    scene("layout-templates", 4, LIMIT, |cluster| {
        let layouts = [
            "-c 2 -S 1M -i 1",
            "-o 3,1,3,1 -S 64k",
            "-C 9",
            "-E 64k -c 1 -E 1M -c 2 -E -1 -C 6",
            "-E 1M -L mdt -E -1 -S 4M -c 3",
            "-E 2M -o 2,0 -S 1M",
        ];
        for (number, layout) in layouts.iter().enumerate() {
            let (first, second) = (format!("a{number}"), format!("b{number}"));
            run(cluster, &format!("lfs setstripe {layout} @{first}"))?;
            let template = cluster.logs().join(format!("{number}.lyl"));
            let text = run(cluster, &format!("lfs getstripe -y @{first}"))?;
            fs::write(&template, text).context(template.display())?;
            run(cluster, &format!("lfs setstripe -y {} @{second}", template.display()))?;
            let (first, second) = (shape(cluster, &first)?, shape(cluster, &second)?);
            ensure(first == second, || format!("{layout}: {first:#?} became {second:#?}"))?;
        }
        flags_are_refused_by_name(cluster)
    });
}

/// What the MDT refuses is not taken for a file of another file system, which has no such calls.
fn flags_are_refused_by_name(cluster: &Cluster) -> Outcome {
    let elsewhere = cluster.logs().join("elsewhere");
    fs::write(&elsewhere, "").context("write")?;
    let ours = cluster.mnt().join("a3");
    for (path, wanted) in
        [(ours, "Operation not supported"), (elsewhere, "Inappropriate ioctl for device")]
    {
        let path = path.to_string_lossy();
        let words = ["lfs", "setstripe", "--comp-set", "-I", "1", "--comp-flags", "prefer", &path];
        let output = cluster.run(&words)?.output;
        ensure(output.contains(wanted), || output.clone())?;
    }
    Ok(())
}

/// What operators set about files on all OSTs and files that are appended to, in one mount or for good.
#[test]
fn limits_and_appended_files_are_as_operators_set_them() {
    scene("layout-appended", 3, LIMIT, |cluster| {
        let append = |name: &str| -> Outcome<String> {
            let path = cluster.mnt().join(name);
            let opened = OpenOptions::new().append(true).create_new(true).open(&path);
            opened.context(name)?.write_all(b"x").context(name)?;
            let show = |what: &str| run(cluster, &format!("lfs getstripe {what} @{name}"));
            Ok(format!("{} {}", show("-c")?.trim(), show("-p")?.trim()))
        };
        let shown = run(cluster, "lctl get_param mdd.*.append_* lod.*.max_stripecount")?;
        for line in [
            "mdd.sheen-MDT0000.append_pool=",
            "mdd.sheen-MDT0000.append_stripe_count=1",
            "lod.sheen-MDT0000-mdtlov.max_stripecount=0",
        ] {
            ensure(shown.lines().any(|shown| shown == line), || format!("no {line}: {shown}"))?;
        }
        run(cluster, "lfs setstripe -E 1M -L mdt -E -1 -c 2 @")?;
        let one = append("one")?;
        ensure(one == "1 ", || format!("{one:?} by default"))?;
        run(cluster, "lctl pool_new sheen.logs")?;
        run(cluster, "lctl pool_add sheen.logs OST[1-2]")?;
        run(cluster, "lctl set_param -P mdd.*.append_pool=logs")?;
        run(cluster, "lctl conf_param sheen-MDT0000.mdd.append_stripe_count=-1")?;
        let value = |name: &str| run(cluster, &format!("lctl get_param -n mdd.*.{name}"));
        wait_until("the settings", SEEN, || {
            value("append_pool").is_ok_and(|text| text.trim() == "logs")
                && value("append_stripe_count").is_ok_and(|text| text.trim() == "-1")
        })?;
        let pooled = append("pooled")?;
        ensure(pooled == "2 logs", || format!("{pooled:?} in a pool"))?;
        run(cluster, "lctl set_param lod.*.max_stripecount=2")?;
        run(cluster, "lfs setstripe -c -1 @wide")?;
        let wide = run(cluster, "lfs getstripe -c @wide")?;
        ensure(wide.trim() == "2", || format!("{wide} stripes of 2 at most"))?;
        let refused = cluster.run(&["lctl", "set_param", "lod.*.max_stripecount=2001"])?;
        ensure(refused.status.code() == Some(34), || format!("{:?}", refused.status))
    });
}

fn tree(top: &Path, depth: usize) -> Outcome {
    for number in 0..4 {
        let file = top.join(format!("f{number}"));
        fs::write(&file, vec![b'x'; number * 1000]).context(file.display())?;
        let folder = top.join(format!("d{number}"));
        fs::create_dir(&folder).context(folder.display())?;
        if depth > 0 {
            tree(&folder, depth - 1)?;
        }
    }
    Ok(())
}

/// Many threads find what one finds; with one, a directory stands before what it holds.
#[test]
fn threads_find_what_one_finds() {
    scene("layout-find", 2, LIMIT, |cluster| {
        let top = cluster.mnt().join("t");
        fs::create_dir(&top).context(top.display())?;
        run(cluster, "lfs setstripe -c 2 @t/d-two")?;
        tree(&top, 2)?;
        for tests in ["", "-type f -size +1c -c 1", "-c 2 -type f", "-name f[12] -maxdepth 2"] {
            let list = |threads: usize| -> Outcome<Vec<String>> {
                let text = run(cluster, &format!("lfs find @t {tests} --threads {threads}"))?;
                Ok(text.lines().map(str::to_owned).collect())
            };
            let (one, many) = (list(1)?, list(5)?);
            ensure(!one.is_empty(), || format!("{tests}: nothing found"))?;
            let (count, all): (usize, BTreeSet<_>) = (one.len(), one.iter().cloned().collect());
            ensure(all.len() == count, || format!("{tests}: found twice"))?;
            ensure(many.len() == count && all == many.into_iter().collect(), || {
                format!("{tests}: five threads find other files")
            })?;
            let mut seen = BTreeSet::new();
            for path in list(1)?.iter().filter(|_| tests.is_empty()) {
                let parent = Path::new(path).parent().map(|path| path.display().to_string());
                let known = seen.is_empty() || parent.is_some_and(|path| seen.contains(&path));
                ensure(known, || format!("{path} stands before its directory"))?;
                seen.insert(path.clone());
            }
        }
        Ok(())
    });
}

/// Pools and what operators set about layouts are there after a restart, in mounts and in the MDT.
#[test]
fn pools_and_settings_survive_a_restart() {
    scene("layout-restart", 3, LIMIT, |cluster| {
        run(cluster, "lctl pool_new sheen.fast")?;
        run(cluster, "lctl pool_add sheen.fast OST[0-2/2]")?;
        run(cluster, "lctl set_param -P lod.*.dom_stripesize=65536")?;
        run(cluster, "lctl conf_param sheen-MDT0000.lod.stripecount=2")?;
        let value = |name: &str| run(cluster, &format!("lctl get_param -n lod.*-mdtlov.{name}"));
        let settled = || {
            value("dom_stripesize").is_ok_and(|text| text.trim() == "65536")
                && value("stripecount").is_ok_and(|text| text.trim() == "2")
        };
        wait_until("the settings", SEEN, settled)?;
        cluster.down()?;
        cluster.up()?;
        wait_until("the settings after a restart", SEEN, settled)?;
        let members = "sheen-OST0000_UUID\nsheen-OST0002_UUID";
        for name in ["lov.*.pools.fast", "lod.*.pools.fast"] {
            let shown = || {
                let text = run(cluster, &format!("lctl get_param -n {name}"));
                text.is_ok_and(|text| text.trim() == members)
            };
            wait_until(name, SEEN, shown)?;
        }
        // The MDT takes objects from the pool, as many as it has, and cuts what is to lie on it.
        run(cluster, "lfs setstripe -p fast -c -1 @pooled")?;
        let count = run(cluster, "lfs getstripe -c @pooled")?;
        ensure(count.trim() == "2", || format!("{count} stripes"))?;
        let found = run(cluster, "lfs find @ --pool fast -type f")?;
        ensure(found.trim().ends_with("pooled"), || format!("found {found}"))?;
        let text = run(cluster, "lfs setstripe -E 1M -L mdt -E -1 @cut")?;
        ensure(text.contains("the MDT holds 65536 bytes instead of 1048576"), || text)?;
        // The root has no default of its own, so that the MDT's counts.
        let stripes = |name: &str| -> Outcome<String> {
            fs::write(cluster.mnt().join(name), b"x").context(name)?;
            Ok(run(cluster, &format!("lfs getstripe -c @{name}"))?.trim().to_owned())
        };
        let plain = stripes("plain")?;
        ensure(plain == "2", || format!("{plain} stripes by default"))?;
        run(cluster, "lfs setstripe -c 3 @")?;
        let own = stripes("own")?;
        ensure(own == "3", || format!("{own} stripes by the root's default"))?;
        run(cluster, "lfs setstripe -d @")?;
        let again = stripes("again")?;
        ensure(again == "2", || format!("{again} stripes without it"))
    });
}
