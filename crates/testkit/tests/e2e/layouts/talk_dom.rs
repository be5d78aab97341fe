//! The worked examples of the talk "Lustre Data on MDT - an early look" (LUG 2018), each on a mount.
//!
//! Where the talk's release (2.11) and 2.17 differ, 2.17's recordings say what is right: o8 for limits,
//! o4 for what is found, o10 for moves.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use super::facts::{END, MIB, compare, open, parts, refused, run, shape, write};

const LIMIT: Duration = Duration::from_secs(300);
/// Longer than settings take to reach the MDT.
const SEEN: Duration = Duration::from_secs(60);
const SEED: u64 = 2018;
/// The limit on the MDT's part of a file in the talk's larger examples.
const GIB: u64 = 1 << 30;

/// The components of a file of the mount are these.
fn must_lie(cluster: &Cluster, name: &str, wanted: &[(u64, u64, &str, i64)]) -> Outcome {
    let parts = parts(cluster, name)?;
    let shape = shape(&parts);
    ensure(shape == wanted, || format!("{name}: {shape:?} instead of {wanted:?}"))
}

fn must_fail<T>(what: &str, done: std::io::Result<T>, wanted: Errno) -> Outcome {
    let code = done.err().and_then(|error| error.raw_os_error());
    let wanted = wanted.raw_os_error();
    ensure(code == Some(wanted), || format!("{what}: errno {code:?} instead of {wanted}"))
}

fn must_be_long(path: &Path, size: u64) -> Outcome {
    let seen = fs::metadata(path).context(path.display())?.len();
    ensure(seen == size, || format!("{}: {seen} bytes instead of {size}", path.display()))
}

/// `lfs setstripe -E 1M -L mdt`: there is room for a mebibyte and nothing behind it.
#[test]
fn a_file_of_one_mebibyte_on_the_mdt_takes_no_byte_more() {
    scene("talk-dom-only", 2, LIMIT, |cluster| {
        let (path, other) = (cluster.mnt().join("dom"), cluster.mount_again()?.join("dom"));
        run(cluster, "lfs setstripe -E 1M -L mdt @dom")?;
        must_lie(cluster, "dom", &[(0, 1, "mdt", 0)])?;
        let file = open(&path)?;
        write(&file, SEED, 0, MIB)?;
        // dd's second mebibyte: nothing of it is written.
        must_fail("a write past the end", file.write_at(&[7; 4096], MIB), Errno::NODATA)?;
        must_be_long(&other, MIB)?;
        must_fail("a longer size", file.set_len(MIB + 1), Errno::NODATA)?;
        let mut append = OpenOptions::new().append(true).open(&path).context("open")?;
        must_fail("an append", append.write(b"x"), Errno::NODATA)?;
        must_be_long(&other, MIB)?;
        compare(&other, SEED, MIB, &[(0, MIB)])?;
        // What crosses the end is written up to there, as by any disk that is full.
        let written = file.write_at(&[7; 4096], MIB - 1000).context("a write across the end")?;
        ensure(written == 1000, || format!("{written} bytes written"))?;
        file.set_len(MIB - 10).context("cut")?;
        let written = append.write(&[7; 4096]).context("an append across the end")?;
        ensure(written == 10, || format!("{written} bytes appended"))?;
        drop((file, append));
        must_be_long(&other, MIB)?;
        let read = fs::read(&other).context("read")?;
        ensure(read[read.len() - 1000..].iter().all(|byte| *byte == 7), || "lost".to_owned())?;
        same_after_restart(cluster)
    });
}

/// `lfs setstripe -E 1M -L mdt -E -1 -c 1`: the OST's part comes with the first byte behind the MDT's.
#[test]
fn a_file_on_the_mdt_grows_onto_an_ost() {
    scene("talk-dom-ost", 2, LIMIT, |cluster| {
        let (path, other) = (cluster.mnt().join("f"), cluster.mount_again()?.join("f"));
        run(cluster, "lfs setstripe -E 1M -L mdt -E -1 -c 1 @f")?;
        let file = open(&path)?;
        write(&file, SEED, 0, MIB)?;
        must_lie(cluster, "f", &[(0, 1, "mdt", 0), (1, END, "raid0", 1)])?;
        ensure(!parts(cluster, "f")?[1].init, || "an object before its first byte".to_owned())?;
        write(&file, SEED, MIB, MIB)?;
        let grown = parts(cluster, "f")?;
        ensure(grown[1].init && grown[1].objects.len() == 1, || format!("{grown:?}"))?;
        compare(&other, SEED, 2 * MIB, &[(0, 2 * MIB)])?;
        drop(file);
        same_after_restart(cluster)
    });
}

/// `lfs setstripe -E 1G -L mdt -E -1 -c -1`. In the talk the MDT took a gibibyte as it stood; 2.17 cuts
/// it to `dom_stripesize`, a mebibyte unless it was set otherwise (o8), and `lfs` says so here.
#[test]
fn a_gibibyte_on_the_mdt_and_all_osts_behind_it() {
    scene("talk-dom-gibibyte", 4, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let said = run(cluster, "lfs setstripe -E 1G -L mdt -E -1 -c -1 @cut")?;
        let wanted = "the MDT holds 1048576 bytes instead of 1073741824";
        ensure(said.contains(wanted), || format!("said only {said:?}"))?;
        // A component without objects does not know yet how many OSTs there are.
        let cut = parts(cluster, "cut")?;
        ensure(cut.len() == 2 && cut[0].end == MIB && !cut[1].init, || format!("{cut:?}"))?;
        run(cluster, "lctl set_param lod.*.dom_stripesize=1G")?;
        let said = run(cluster, "lfs setstripe -E 1G -L mdt -E -1 -c -1 @whole")?;
        ensure(!said.contains("warning"), || said)?;
        for (name, end) in [("cut", MIB), ("whole", GIB)] {
            let spots = [(0, MIB), (end - MIB / 2, 20 * MIB)];
            let file = open(&cluster.mnt().join(name))?;
            for (offset, length) in spots {
                write(&file, SEED, offset, length)?;
            }
            must_lie(cluster, name, &[(0, end / MIB, "mdt", 0), (end / MIB, END, "raid0", 4)])?;
            parts(cluster, name)?[1].must_be_distinct()?;
            compare(&other.join(name), SEED, end + 20 * MIB - MIB / 2, &spots)?;
        }
        let (code, said) = refused(cluster, "lfs setstripe -E 1025M -L mdt @over")?;
        ensure(code == Errno::FBIG.raw_os_error(), || format!("exit {code}: {said}"))
    });
}

/// `lfs setstripe -E 1M -L mdt -E 64M -c 1 -E 256M -c 4 -E -1 -c -1` where there are 14 OSTs.
#[test]
fn four_components_over_fourteen_osts() {
    scene("talk-four-components", 14, LIMIT, |cluster| {
        let layout = "-E 1M -L mdt -E 64M -c 1 -E 256M -c 4 -E -1 -c -1";
        fs::create_dir(cluster.mnt().join("d")).context("mkdir")?;
        run(cluster, &format!("lfs setstripe {layout} @d"))?;
        let (path, other) = (cluster.mnt().join("d/f"), cluster.mount_again()?.join("d/f"));
        let file = File::create_new(&path).context("create")?;
        let initialised = |count: usize| -> Outcome {
            let parts = parts(cluster, "d/f")?;
            let seen = parts.iter().take_while(|part| part.init).count();
            ensure(seen == count, || format!("{seen} components with objects, not {count}"))
        };
        // 60 MiB from 256 MiB on: four stripes of each of the last component's first OSTs, one of all.
        let steps = [(0, MIB), (MIB, MIB), (63 * MIB, 18 * MIB), (255 * MIB, 61 * MIB)];
        for (number, (offset, length)) in steps.into_iter().enumerate() {
            write(&file, SEED, offset, length)?;
            initialised(number + 1)?;
        }
        drop(file);
        let wanted =
            [(0, 1, "mdt", 0), (1, 64, "raid0", 1), (64, 256, "raid0", 4), (256, END, "raid0", 14)];
        must_lie(cluster, "d/f", &wanted)?;
        let last = &parts(cluster, "d/f")?[3];
        last.must_be_distinct()?;
        ensure((0..14).all(|ost| last.on(ost) == 1), || format!("{last:?}"))?;
        compare(&other, SEED, 316 * MIB, &steps)?;
        same_after_restart(cluster)
    });
}

/// What the MDT then makes of a wish for a mebibyte and of one for eight: `None` for nothing on it.
fn mdt_takes(cluster: &Cluster, wanted: [Option<u64>; 2]) -> Outcome {
    for (wish, wanted) in ["1M", "8M"].into_iter().zip(wanted) {
        let file = cluster.mnt().join("series");
        run(cluster, &format!("lfs setstripe -E {wish} -L mdt -E -1 -c 1 @series"))?;
        let parts = parts(cluster, "series")?;
        let first = parts.first().filter(|part| part.pattern == "mdt").map(|part| part.end);
        ensure(first == wanted, || format!("-E {wish}: {first:?} instead of {wanted:?}"))?;
        write(&open(&file)?, SEED, 0, 2 * MIB)?;
        compare(&file, SEED, 2 * MIB, &[(0, 2 * MIB)])?;
        fs::remove_file(&file).context("rm")?;
    }
    Ok(())
}

/// The series of the talk, with 2.17's values (o8): rounded down to 64 KiB, at least as much, at most a
/// gibibyte; more is refused and changes nothing; 0 leaves nothing on the MDT.
#[test]
fn dom_stripesize_takes_the_values_of_the_series() {
    scene("talk-dom-stripesize", 2, LIMIT, |cluster| {
        let value = || {
            let shown = run(cluster, "lctl get_param -n lod.*-mdtlov.dom_stripesize")?;
            shown.trim().parse::<u64>().context(shown)
        };
        ensure(value()? == MIB, || "another default".to_owned())?;
        let kib = |count: u64| Some(count << 10);
        let series = [
            ("65536", 65536, [kib(64), kib(64)]),
            ("32768", 65536, [kib(64), kib(64)]),
            ("131072", 131_072, [kib(128), kib(128)]),
            ("100K", 65536, [kib(64), kib(64)]),
            ("4M", 4 * MIB, [kib(1024), kib(4096)]),
            ("1G", GIB, [kib(1024), kib(8192)]),
            ("0", 0, [None, None]),
            ("1M", MIB, [kib(1024), kib(1024)]),
        ];
        for (text, wanted, takes) in series {
            run(cluster, &format!("lctl set_param lod.*.dom_stripesize={text}"))?;
            let seen = value()?;
            ensure(seen == wanted, || format!("{text}: {seen} instead of {wanted}"))?;
            mdt_takes(cluster, takes)?;
            if text == "1G" {
                let (code, said) = refused(cluster, "lctl set_param lod.*.dom_stripesize=1025M")?;
                ensure(code == Errno::RANGE.raw_os_error(), || format!("exit {code}: {said}"))?;
                ensure(value()? == GIB, || "the refused value counts".to_owned())?;
            }
            if text == "0" {
                let (code, said) = refused(cluster, "lfs setstripe -E 1M -L mdt @only")?;
                ensure(code != 0, || format!("exit {code}: {said}"))?;
                ensure(!cluster.mnt().join("only").exists(), || "a file is left".to_owned())?;
            }
        }
        // For good, both ways; the one that was set last holds, also after a restart.
        for (command, wanted) in [
            ("lctl set_param -P lod.*.dom_stripesize=262144", 262_144),
            ("lctl conf_param sheen-MDT0000.lod.dom_stripesize=524288", 524_288),
        ] {
            run(cluster, command)?;
            wait_until(command, SEEN, || value().is_ok_and(|seen| seen == wanted))?;
            mdt_takes(cluster, [Some(wanted), Some(wanted)])?;
        }
        Ok(())
    });
}

/// The names below `top` that `lfs find @top TESTS` lists, in order.
fn found(cluster: &Cluster, top: &str, tests: &str) -> Outcome<Vec<String>> {
    let text = run(cluster, &format!("lfs find @{top} {tests}"))?;
    let mount = format!("{}/", cluster.mnt().display());
    let mut names: Vec<_> = text.lines().map(|line| line.replace(&mount, "")).collect();
    names.sort();
    Ok(names)
}

/// `lfs find -L mdt`, `-S 1M`, `-S -180K -type d`.
#[test]
fn files_and_directories_are_found_by_their_place_on_the_mdt() {
    scene("talk-find", 2, LIMIT, |cluster| {
        for (name, size) in [("", ""), ("/d64k", "64k"), ("/d128k", "128k"), ("/d1M", "1M")] {
            fs::create_dir(cluster.mnt().join(format!("t{name}"))).context(name)?;
            if !size.is_empty() {
                run(cluster, &format!("lfs setstripe -E {size} -L mdt -E -1 @t{name}"))?;
                File::create_new(cluster.mnt().join(format!("t{name}/f"))).context(name)?;
            }
        }
        run(cluster, "lfs setstripe -c 2 -S 1M @t/striped")?;
        let all = ["t/d128k", "t/d128k/f", "t/d1M", "t/d1M/f", "t/d64k", "t/d64k/f"];
        let files = ["t/d128k/f", "t/d1M/f", "t/d64k/f"];
        let folders = ["t/d128k", "t/d1M", "t/d64k"];
        let expect = |tests: &str, wanted: &[&str]| {
            let seen = found(cluster, "t", tests)?;
            ensure(seen == wanted, || format!("{tests}: {seen:?} instead of {wanted:?}"))
        };
        expect("-L mdt", &all)?;
        expect("-L mdt -type d", &folders)?;
        expect("-L mdt -type f", &files)?;
        // 1M is rounded up to its unit: whatever has a stripe size of at most a mebibyte (o4).
        expect("-S 1M", &[&files[..], &["t/striped"]].concat())?;
        // Without a layout of its own a directory has no stripe size, which is smaller (o4).
        expect("-S -180K -type d", &[&["t"], &folders[..]].concat())?;
        expect("-L mdt -S -180K -type d", &folders)?;
        expect("! -L mdt -type f", &["t/striped"])
    });
}

/// `lfs migrate -L mdt -E 4M`: the options in this order are the same wish as `-E 4M -L mdt`, and what
/// the MDT does not hold is cut, so 4 MiB need the limit raised first. 2.17 refuses the move with
/// EINVAL even then (o10); here it works.
#[test]
fn a_mebibyte_on_the_mdt_becomes_four() {
    scene("talk-dom-grows", 2, LIMIT, |cluster| {
        let (path, other) = (cluster.mnt().join("f"), cluster.mount_again()?.join("f"));
        run(cluster, "lfs setstripe -E 1M -L mdt @f")?;
        write(&open(&path)?, SEED, 0, MIB)?;
        run(cluster, "lfs migrate -L mdt -E 4M @f")?;
        must_lie(cluster, "f", &[(0, 1, "mdt", 0)])?;
        run(cluster, "lctl set_param lod.*.dom_stripesize=4M")?;
        run(cluster, "lfs migrate -L mdt -E 4M @f")?;
        must_lie(cluster, "f", &[(0, 4, "mdt", 0)])?;
        compare(&other, SEED, MIB, &[(0, MIB)])?;
        let file = open(&path)?;
        write(&file, SEED, MIB, 3 * MIB)?;
        must_fail("a write past the end", file.write_at(b"x", 4 * MIB), Errno::NODATA)?;
        drop(file);
        compare(&other, SEED, 4 * MIB, &[(0, 4 * MIB)])?;
        // Smaller than its data it does not become; nothing is lost by trying.
        let (code, said) = refused(cluster, "lfs migrate -E 1M -L mdt @f")?;
        ensure(code == Errno::NODATA.raw_os_error(), || format!("exit {code}: {said}"))?;
        must_lie(cluster, "f", &[(0, 4, "mdt", 0)])?;
        run(cluster, "lfs migrate -c 2 @f")?;
        must_lie(cluster, "f", &[(0, END, "raid0", 2)])?;
        compare(&other, SEED, 4 * MIB, &[(0, 4 * MIB)])?;
        same_after_restart(cluster)
    });
}

/// `lfs migrate -E 64M -c 1 -E 256M -c 4 -E -1 -c -1` of a gibibyte on the MDT, which brought the
/// kernel of the talk's release down.
#[test]
fn a_gibibyte_leaves_the_mdt() {
    scene("talk-dom-leaves", 4, LIMIT, |cluster| {
        let (path, other) = (cluster.mnt().join("f"), cluster.mount_again()?.join("f"));
        run(cluster, "lctl set_param lod.*.dom_stripesize=1G")?;
        run(cluster, "lfs setstripe -E 1G -L mdt -E -1 -c -1 @f")?;
        // Bytes in each component that there will be, and over each of their borders.
        let spots =
            [(0, MIB), (63 * MIB, 2 * MIB), (255 * MIB, 18 * MIB), (GIB - 3 * MIB, 3 * MIB)];
        let file = open(&path)?;
        for (offset, length) in spots {
            write(&file, SEED, offset, length)?;
        }
        drop(file);
        must_lie(cluster, "f", &[(0, 1024, "mdt", 0), (1024, END, "raid0", -1)])?;
        run(cluster, "lfs migrate -E 64M -c 1 -E 256M -c 4 -E -1 -c -1 @f")?;
        let wanted = [(0, 64, "raid0", 1), (64, 256, "raid0", 4), (256, END, "raid0", 4)];
        must_lie(cluster, "f", &wanted)?;
        compare(&other, SEED, GIB, &spots)?;
        // Holes stay holes.
        let blocks = fs::metadata(&other).context("stat")?.blocks() * 512;
        ensure(blocks < 64 * MIB, || format!("{blocks} bytes on disk"))?;
        run(cluster, "lfs migrate -E 1G -L mdt -E -1 -c -1 @f")?;
        must_lie(cluster, "f", &[(0, 1024, "mdt", 0), (1024, END, "raid0", -1)])?;
        compare(&other, SEED, GIB, &spots)
    });
}
