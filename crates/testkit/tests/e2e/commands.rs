//! Commands of `lctl` and `lfs` that speak to one device, one log, one network or one directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const SEEN: Duration = Duration::from_secs(60);

/// What `sheen LINE` writes and leaves with, `@` standing for the mount.
fn run(cluster: &Cluster, line: &str) -> Outcome<(i32, String)> {
    let mount = format!("{}/", cluster.mnt().display());
    let words: Vec<String> = line
        .split_whitespace()
        .map(|word| {
            word.strip_prefix('@').map_or_else(|| word.to_owned(), |name| format!("{mount}{name}"))
        })
        .collect();
    let ended = cluster.run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok((ended.status.code().unwrap_or(-1), ended.output))
}

/// It leaves with `code` and says `text`.
fn says(cluster: &Cluster, line: &str, code: i32, text: &str) -> Outcome {
    let (left, output) = run(cluster, line)?;
    ensure(left == code && output.contains(text), || format!("{line}: {left} {output}"))
}

/// The number of the device of this name in `lctl dl`.
fn number(cluster: &Cluster, part: &str) -> Outcome<String> {
    let (_, list) = run(cluster, "lctl dl")?;
    let line = list.lines().find(|line| line.contains(part));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.map(str::to_owned).ok_or_else(|| format!("{part}: {list}"))
}

#[test]
fn devices_are_listed_and_one_is_switched_off_and_on() {
    scene("devices", 2, LIMIT, |cluster| {
        let (_, list) = run(cluster, "lctl dl")?;
        for wanted in [
            "UP mgc MGC",
            "UP lov sheen-clilov-",
            "UP lmv sheen-clilmv-",
            "UP mdc sheen-MDT0000-mdc-",
            "UP osc sheen-OST0001-osc-",
            "UP mgs MGS ",
            "UP osd-sheen sheen-MDT0000-osd sheen-MDT0000-osd_UUID ",
            "UP mds MDS MDS_uuid ",
            "UP lod sheen-MDT0000-mdtlov sheen-MDT0000-mdtlov_UUID ",
            "UP mdt sheen-MDT0000 sheen-MDT0000_UUID ",
            "UP mdd sheen-MDD0000 sheen-MDD0000_UUID ",
            "UP osp sheen-OST0001-osc-MDT0000 sheen-MDT0000-mdtlov_UUID ",
            "UP ost OSS OSS_uuid ",
            "UP obdfilter sheen-OST0001 sheen-OST0001_UUID ",
        ] {
            ensure(list.contains(wanted), || format!("{wanted}: {list}"))?;
        }
        let mgcs = list.lines().filter(|line| line.contains(" mgc MGC")).count();
        ensure(mgcs == 2, || format!("one of the mount and one of the server: {list}"))?;
        let osc = number(cluster, " osc sheen-OST0001-osc-")?;
        for (command, state) in [("deactivate", "INACTIVE"), ("activate", "ACTIVE")] {
            says(cluster, &format!("lctl --device {osc} {command}"), 0, "")?;
            let wanted = format!("1: sheen-OST0001_UUID {state}");
            wait_until(state, SEEN, || {
                run(cluster, "lfs osts @").is_ok_and(|(_, list)| list.contains(&wanted))
            })?;
        }
        says(cluster, "lctl --device %sheen-OST0000-osc-MDT0000 deactivate", 0, "")?;
        says(cluster, "lctl get_param osp.*OST0000*.active", 0, ".active=0")?;
        says(cluster, "lctl dl", 0, "IN osp sheen-OST0000-osc-MDT0000 ")?;
        says(cluster, "lctl --device sheen-OST0000-osc-MDT0000 activate", 0, "")?;
        says(cluster, "lctl get_param osp.*OST0000*.active", 0, ".active=1")?;
        says(cluster, &format!("lctl --device {osc} recover"), 0, "")?;
        says(cluster, "lctl --device sheen-MDT0000 recover", 95, "error: recover: ")?;
        says(cluster, "lctl --device sheen-MDT0000 deactivate", 95, "deactivate: failed: ")?;
        says(cluster, "lctl --device sheen-MDT0000 abort_recovery", 0, "")?;
        says(cluster, &format!("lctl --device {osc} abort_recovery"), 95, "abort_recovery")?;
        for target in ["sheen-MDT0000", "sheen-OST0000"] {
            says(cluster, &format!("lctl --device {target} abort_recovery_mdt"), 0, "")?;
        }
        let on_osc = format!("lctl --device {osc} abort_recovery_mdt");
        says(cluster, &on_osc, 95, "error: abort_recovery_mdt: ")?;
        // Exit codes and words as the recording e11c has them.
        let unknown = "No device found for name bogus: Invalid argument";
        says(cluster, "lctl --device bogus activate", 1, unknown)?;
        says(cluster, "lctl --device 99 deactivate", 22, "error: deactivate: failed: Invalid")?;
        says(cluster, "lctl activate", 22, "choose a device with --device")
    });
}

#[test]
fn the_logs_of_the_mgs_are_shown() {
    scene("logs", 1, LIMIT, |cluster| {
        says(cluster, "lctl set_param -P jobid_var=procname_uid", 0, "")?;
        says(cluster, "lctl conf_param sheen-OST0000.osc.max_dirty_mb=24", 0, "")?;
        let (_, names) = run(cluster, "lctl llog_catlist")?;
        for name in ["config_log: sheen-client\n", "config_log: sheen-MDT0000\n"] {
            ensure(names.contains(name), || names.clone())?;
        }
        ensure(!names.contains("params"), || names.clone())?;
        let record =
            "event: set_param, device: general, parameter: jobid_var, value: procname_uid }";
        says(cluster, "lctl --device MGS llog_print params", 0, record)?;
        let record =
            "event: conf_param, device: sheen-OST0000-osc, parameter: osc.max_dirty_mb=24 }";
        says(cluster, "lctl llog_print sheen-client", 0, record)?;
        let (_, all) = run(cluster, "lctl llog_print sheen-client")?;
        ensure(!all.contains("marker"), || all.clone())?;
        for (event, part) in [("attach", "type: lov"), ("add_osc", "ost: sheen-OST0000_UUID")] {
            let is_there = |line: &str| line.contains(event) && line.contains(part);
            ensure(all.lines().any(is_there), || format!("{event} {part}: {all}"))?;
        }
        let (_, part) = run(cluster, "lctl llog_print sheen-client --start 2 --end 2")?;
        ensure(part.lines().count() == 1 && part.contains("index: 2,"), || part.clone())?;
        says(cluster, "lctl llog_print --raw sheen-client", 0, "event: marker, flags: 0x01")?;
        // What was deleted is in the log and counts no more.
        says(cluster, "lctl conf_param -d sheen-OST0000.osc.max_dirty_mb", 0, "")?;
        let (_, all) = run(cluster, "lctl llog_print sheen-client")?;
        ensure(!all.contains("max_dirty_mb=24"), || all.clone())?;
        says(cluster, "lctl llog_print --raw sheen-client", 0, "max_dirty_mb=24")?;
        // A target is elsewhere from now on: the log has what was before only as cancelled.
        says(cluster, "lctl replace_nids sheen-OST0000 127.9.9.1@tcp:127.9.9.2@tcp", 0, "")?;
        let (_, all) = run(cluster, "lctl llog_print sheen-client")?;
        let adds = all.lines().filter(|line| line.contains("add_osc")).count();
        let node =
            |nid: &str| all.lines().any(|line| line.contains("add_uuid") && line.contains(nid));
        ensure(adds == 1 && node("127.9.9.1@tcp") && node("127.9.9.2@tcp"), || all.clone())?;
        says(cluster, "lctl replace_nids sheen-OST0009 127.9.9.1@tcp", 2, "replace_nids: No such")?;
        says(cluster, "lctl replace_nids sheen-OST0000 bogus", 22, "replace_nids: Invalid")?;
        says(cluster, "lctl llog_print sheen-nosuch", 2, "No such file")?;
        says(cluster, "lctl llog_print", 4, "no logname specified")
    });
}

#[test]
fn a_network_is_shown() {
    scene("networks", 1, LIMIT, |cluster| {
        let (_, nids) = run(cluster, "lctl list_nids")?;
        let own: Vec<&str> = nids.lines().collect();
        let (_, server) = run(cluster, "lctl get_param -n osc.*.ost_conn_uuid")?;
        let server = server.trim();
        ensure(own.contains(&server), || format!("{server}: {nids}"))?;
        says(cluster, &format!("lctl which_nid {server}"), 0, server)?;
        says(cluster, "lctl which_nid bogus@tcp", 1, "Can't parse NID bogus@tcp")?;
        says(cluster, "lctl which_nid", 0, "usage: which_nid NID [NID...]")?;
        says(cluster, "lctl --net tcp peer_list", 0, &format!("12345-{server}"))?;
        says(cluster, "lctl --net tcp conn_list", 0, &format!("12345-{server}"))?;
        let interface = "/255.0.0.0) npeer 0 nroute ";
        says(cluster, "lctl --net tcp interface_list", 0, interface)?;
        says(cluster, "lctl peer_list", 1, "--net")?;
        says(cluster, "lctl --net o2ib peer_list", 1, "o2ib")?;
        let (_, net) = run(cluster, "lnetctl net show -v 4")?;
        let nid = format!("      -     nid: {server}\n            status: up\n");
        ensure(net.starts_with("net:\n") && net.contains(&nid), || net.clone())?;
        let count = |text: &str, name: &str| -> u64 {
            let values = text.lines().filter_map(|line| line.trim().strip_prefix(name));
            values.filter_map(|value| value.strip_prefix(": ")?.parse::<u64>().ok()).sum()
        };
        for name in ["send_count", "recv_count", "put"] {
            ensure(count(&net, name) > 0, || format!("{name}: {net}"))?;
        }
        let (_, stats) = run(cluster, "lnetctl stats show")?;
        for name in ["send_count", "recv_count", "send_length", "recv_length"] {
            ensure(count(&stats, name) > 0, || format!("{name}: {stats}"))?;
        }
        says(cluster, "lnetctl peer show", 0, &format!("-     primary nid: {server}\n"))?;
        says(cluster, "lnetctl peer list", 0, &format!("-     nid: {server}\n"))?;
        says(cluster, "lnetctl route show", 95, "'route' is not supported")?;
        says(cluster, "lnetctl net add", 95, "'add' is not supported")?;
        says(cluster, "lnetctl bogus", 234, "'bogus' is not a valid command")?;
        says(cluster, "lctl network up", 0, "LNET configured")?;
        says(cluster, "lctl network down", 16, "LNET busy")?;
        says(cluster, "lctl network bogus", 1, "Can't parse net bogus")?;
        says(cluster, "lctl network", 4, "must be specified")
    });
}

#[test]
fn directories_lie_on_the_one_mdt_and_files_go_by_their_fids() {
    scene("dirstripe", 1, LIMIT, |cluster| {
        says(cluster, "lfs mkdir -i 0 @a", 0, "")?;
        says(cluster, "lfs setdirstripe -c 4 -H crush -i -1 @b", 0, "")?;
        says(cluster, "lfs mkdir -m 0 -o 1777 @c", 0, "")?;
        let plain = "lmv_stripe_count: 0 lmv_stripe_offset: 0 lmv_hash_type: none\n";
        says(cluster, "lfs getdirstripe @a", 0, plain)?;
        says(cluster, "lfs mkdir -i 1 @d", 19, "No such device")?;
        says(cluster, "lfs mkdir -i 0 @a", 17, "File exists")?;
        says(cluster, "lfs mkdir -D @a", 0, "")?;
        says(cluster, "lfs setdirstripe -d @a", 0, "")?;
        says(cluster, "lfs mkdir -i 0 /tmp/no-lustre", 19, "not on a Lustre filesystem")?;
        says(cluster, "lfs getdirstripe /tmp", 25, "Inappropriate ioctl")?;
        fs::create_dir(cluster.mnt().join("a/below")).context("mkdir")?;
        let (_, all) = run(cluster, "lfs getdirstripe -r @a")?;
        ensure(all.matches(plain).count() == 2, || all.clone())?;
        // What the MDT knows of a size comes with the close, which goes soon.
        fs::write(cluster.mnt().join("sized"), "abc").context("write")?;
        wait_until("the size", SEEN, || {
            run(cluster, "lfs getsom @sized")
                .is_ok_and(|(_, text)| text.contains(" size: 3 blocks: "))
        })?;
        says(cluster, "lfs getsom -s @sized", 0, "3\n")?;
        versions_differ_after_changes(cluster)?;
        says(cluster, "lfs getsom @a", 61, "failed to get som xattr: No data available (61)")?;
        // Under all its names.
        let (one, other) = (cluster.mnt().join("a/one"), cluster.mnt().join("b/other"));
        fs::write(&one, "x").context("write")?;
        fs::hard_link(&one, &other).context("link")?;
        let (_, fid) = run(cluster, "lfs path2fid @a/one")?;
        let (_, folder) = run(cluster, "lfs path2fid @c")?;
        let (fid, folder) = (fid.trim(), folder.trim());
        says(cluster, &format!("lfs rmfid @ {fid}"), 0, "")?;
        ensure(!one.exists() && !other.exists(), || "a name is left".to_owned())?;
        says(cluster, &format!("lfs rmfid sheen {fid}"), 2, "No such file")?;
        says(cluster, &format!("lfs rmfid @ {folder}"), 21, "Is a directory")?;
        says(cluster, "lfs rmfid @ bogus", 22, "invalid FID")
    });
}

/// `lfs data_version`, of a file on OSTs and of one on the MDT, asked for by a mount that has not written it.
fn versions_differ_after_changes(cluster: &Cluster) -> Outcome {
    let other = cluster.mount_again()?;
    says(cluster, "lfs setstripe -E 1M -L mdt @on-mdt", 0, "")?;
    for name in ["sized", "on-mdt"] {
        let version = |options: &str| -> Outcome<u64> {
            let path = other.join(name);
            let (code, text) =
                run(cluster, &format!("lfs data_version {options} {}", path.display()))?;
            let version = text.trim().parse().context(format!("{name} {options}: {text}"))?;
            ensure(code == 0 && version > 0, || format!("{name} {options}: {text}"))
                .map(|()| version)
        };
        let path = cluster.mnt().join(name);
        fs::write(&path, "one").context("write")?;
        let first = version("-r")?;
        let again = [version("-n")?, version("")?, version("-w")?];
        ensure(again == [first; 3], || format!("{name}: {first}, {again:?}"))?;
        // It is in the cache of the mount that has written it: a version that flushes nothing does not count it.
        fs::write(&path, "other").context("write")?;
        let flushed = version("")?;
        ensure(flushed != first && version("-n")? == flushed, || format!("{name}: {flushed}"))?;
    }
    says(cluster, "lfs data_version -s @sized", 95, "cannot set version ")?;
    says(cluster, "lfs data_version --write-lock @", 25, "cannot get version for '")
}

/// A name was cut at a newline, and its bytes that are no UTF-8 became other ones.
#[test]
fn names_of_any_bytes_are_found_by_fids_and_command_no_terminal() {
    scene("odd-names", 1, LIMIT, |cluster| {
        let folder = cluster.mnt().join(OsStr::from_bytes(b"d\xff\n\\"));
        let (file, missing) = (folder.join(OsStr::from_bytes(b"a\x1b\n\xe9")), folder.join("none"));
        fs::create_dir(&folder).context("make a directory")?;
        fs::write(&file, "text").context("write")?;
        let said = |words: &[&OsStr]| -> Outcome<(Vec<u8>, Vec<u8>)> {
            let output = cluster.command(&["lfs"]).args(words).output().context("lfs")?;
            Ok((output.stdout, output.stderr))
        };
        let lfs = |words: &str, path: &Path| {
            let words = words.split(' ').map(OsStr::new);
            said(&words.chain([path.as_os_str()]).collect::<Vec<_>>())
        };
        let (fid, _) = lfs("path2fid", &file)?;
        let fid = String::from_utf8_lossy(fid.trim_ascii()).into_owned();
        let mnt = cluster.mnt();
        let words = ["fid2path", "-0"].map(OsStr::new);
        let words = [&words[..], &[mnt.as_os_str(), OsStr::new(&fid)]].concat();
        let (path, error) = said(&words)?;
        let whole = [file.as_os_str().as_bytes(), b"\0"].concat();
        ensure(path == whole && error.is_empty(), || format!("{}", path.escape_ascii()))?;
        let (parents, _) = lfs("path2fid --parents", &file)?;
        ensure(parents.ends_with(b"]/a\x1b\n\xe9\n"), || format!("{}", parents.escape_ascii()))?;
        let (layout, _) = lfs("getstripe", &file)?;
        let first = [file.as_os_str().as_bytes(), b"\nlmm_stripe_count"].concat();
        ensure(layout.starts_with(&first), || format!("{}", layout.escape_ascii()))?;
        for words in
            ["getstripe", "data_version", "path2fid", "find", "ladvise -a willread", "migrate -c 1"]
        {
            let (_, error) = lfs(words, &missing)?;
            let is_text = error.ends_with(b"\n")
                && !error[..error.len() - 1].iter().any(u8::is_ascii_control);
            let named = String::from_utf8_lossy(&error).contains("/d\\377\\012\\134/none");
            ensure(is_text && named, || format!("{words}: {}", error.escape_ascii()))?;
        }
        // It goes by its FID, whatever its name is.
        let removed = said(&[OsStr::new("rmfid"), mnt.as_os_str(), OsStr::new(&fid)])?;
        ensure(!file.exists(), || format!("rmfid: {}", removed.1.escape_ascii()))
    })
}

#[test]
fn wrong_uses_leave_as_lustres_tools_do() {
    scene("wrong-uses", 2, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("f"), "x").context("write")?;
        says(cluster, "lfs getstripe -O 9 @f", 20, "unknown obduuid: 9")?;
        says(cluster, "lfs getstripe -O sheen-OST0009_UUID @f", 20, "unknown obduuid")?;
        says(cluster, "lfs getstripe -O bogus @", 22, "unknown obduuid: bogus")?;
        says(cluster, "lfs getstripe -O 1 @f", 0, "")?;
        let (_, layout) = run(cluster, "lfs getstripe -d @f")?;
        ensure(layout.starts_with("lmm_stripe_count:"), || layout.clone())?;
        says(cluster, "lfs setstripe -p none @g", 0, "")?;
        says(cluster, "lfs find @ -printf %Q\\n", 0, "unrecognized format directive '%Q'")?;
        says(cluster, "lctl pool_add sheen.nosuch OST0000", 123, "pool sheen.nosuch not found")?;
        says(
            cluster,
            "lctl pool_remove sheen.nosuch OST0000",
            2,
            "not found in pool sheen.nosuch",
        )?;
        // Lustre takes these without a word.
        says(cluster, "lctl pool_add sheen.nosuch OST[2-3/x]", 22, "Wrong format for OST list")?;
        says(cluster, "lctl conf_param sheen", 22, "error: conf_param: Invalid argument")?;
        says(cluster, "lctl set_param lod.*.stripecount=5000", 34, "out of range")?;
        says(cluster, "lctl set_param mdt.*.evict_client=bogus", 2, "No such file")?;
        says(cluster, "lfs ladvise -a willread @f", 0, "")?;
        says(cluster, "lfs ladvise -a dontneed -b -s 4k -l 4k @f", 0, "")?;
        says(cluster, "lfs ladvise -a lockahead -m WRITE -s 0 -e 64k @f", 0, "")?;
        says(cluster, "lfs ladvise -a lockahead -m READ @f", 0, "")?;
        says(cluster, "lfs ladvise -a ahead @f", 1, "cannot give advice 'ahead' to file")?;
        says(cluster, "lfs ladvise -a willread @", 1, "Inappropriate ioctl for device (25)")?;
        says(cluster, "lfs ladvise -a locknoexpand @f", 4, "it does nothing.")?;
        says(cluster, "lfs ladvise -a willread @nofile", 2, "cannot open file")?;
        says(cluster, "lfs ladvise -a willread -s 10 -e 5 @f", 4, "range [10, 5] is invalid")?;
        says(cluster, "lfs migrate -W abc @f", 4, "bad value for bandwidth 'abc'")
    });
}
