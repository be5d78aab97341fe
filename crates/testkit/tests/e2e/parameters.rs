//! Parameters that the MGS keeps: every mount and server takes them, and a restart keeps them.

use std::fs;
use std::time::Duration;

use sheen_control::{Client, ControlReply, ControlRequest};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
/// A change settles for a second before clients read it.
const SEEN: Duration = Duration::from_secs(60);

/// The values of a parameter, one for each name that matches, in order.
fn values(cluster: &Cluster, name: &str) -> Outcome<Vec<String>> {
    let text = cluster.must(&["lctl", "get_param", "-n", name])?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn all_become(cluster: &Cluster, name: &str, count: usize, value: &str) -> Outcome {
    let wanted = vec![value.to_owned(); count];
    let seen = wait_until(name, SEEN, || values(cluster, name).as_ref() == Ok(&wanted));
    seen.map_err(|error| format!("{error}: {:?} instead of {wanted:?}", values(cluster, name)))
}

/// Whether each process, the server and the mount, has this value.
fn each_has(cluster: &Cluster, name: &str, value: &str) -> bool {
    let question = ControlRequest::Get { pattern: name.to_owned() };
    let has = |mut process: Client| match process.ask(&question) {
        Ok(ControlReply::Shown(shown)) => shown.iter().map(|it| it.value.trim()).eq([value]),
        _ => false,
    };
    let all: Vec<bool> = Client::all(cluster.sockets()).into_iter().map(has).collect();
    all == [true, true]
}

/// Lustre calls it `sys.timeout`: servers and clients go by it, from now on and after a start.
#[test]
fn the_timeout_of_a_file_system_is_that_of_its_servers_and_clients() {
    scene("sys-timeout", 1, LIMIT, |cluster| {
        cluster.must(&["lctl", "conf_param", "sheen.sys.timeout=37"])?;
        wait_until("the timeout", SEEN, || each_has(cluster, "timeout", "37"))?;
        let instead = cluster.run(&["lctl", "conf_param", "sheen.sys.timeout=soon"])?;
        ensure(instead.status.code() == Some(22), || instead.output.clone())?;
        cluster.down()?;
        cluster.up()?;
        wait_until("the timeout after a start", SEEN, || each_has(cluster, "timeout", "37"))?;
        let log = fs::read_to_string(cluster.dir().join("run/server.log")).context("log")?;
        // What Lustre does not know it takes all the same, and says so in its log.
        cluster.must(&["lctl", "conf_param", "sheen.bogus.x=1"])?;
        let says = "ignoring a parameter that is not known";
        ensure(!log.contains(says), || log.clone())?;
        let log = fs::read_to_string(cluster.dir().join("run/server.log")).context("log")?;
        ensure(log.contains(says), || log.clone())?;
        let of_target = cluster.run(&["lctl", "conf_param", "sheen-OST0000.llite.x=1"])?;
        ensure(of_target.status.code() == Some(22), || of_target.output.clone())
    });
}

#[test]
fn what_is_set_for_good_reaches_every_mount_and_survives_a_restart() {
    scene("parameters", 2, LIMIT, |cluster| {
        cluster.mount_again()?;
        // One value for each mount and OST.
        let (dirty, window) = ("osc.*OST0001*.max_dirty_mb", "llite.*.max_read_ahead_per_file_mb");
        let requests = "osc.*.max_rpcs_in_flight";
        cluster.must(&["lctl", "conf_param", "sheen-OST0001.osc.max_dirty_mb=24"])?;
        cluster.must(&["lctl", "conf_param", "sheen.llite.max_read_ahead_per_file_mb=5"])?;
        cluster.must(&["lctl", "set_param", "-P", "osc.*OST0001*.max_rpcs_in_flight=12"])?;
        // No client has this one: it is kept and does no harm.
        cluster.must(&["lctl", "set_param", "-P", "osc.*.no_such_thing=1"])?;
        all_become(cluster, dirty, 2, "24")?;
        all_become(cluster, window, 2, "5")?;
        all_become(cluster, "osc.*OST0001*.max_rpcs_in_flight", 2, "12")?;
        let other_osts = values(cluster, "osc.*OST0000*.max_rpcs_in_flight")?;
        ensure(other_osts.iter().all(|value| value != "12"), || {
            format!("OST0000 too: {other_osts:?}")
        })?;

        // What is set here since stays when something else changes on the MGS.
        cluster.must(&["lctl", "set_param", "-n", &format!("{dirty}=30")])?;
        cluster.must(&["lctl", "set_param", "-P", "osc.*OST0000*.max_rpcs_in_flight=9"])?;
        all_become(cluster, "osc.*OST0000*.max_rpcs_in_flight", 2, "9")?;
        all_become(cluster, dirty, 2, "30")?;

        // A server takes its own: the OST says that it is degraded.
        cluster.must(&["lctl", "conf_param", "sheen-OST0000.ost.degraded=1"])?;
        all_become(cluster, "obdfilter.sheen-OST0000.degraded", 1, "1")?;

        // Deleted parameters keep their value until the next start, as in Lustre.
        cluster.must(&["lctl", "conf_param", "-d", "sheen.llite.max_read_ahead_per_file_mb"])?;
        cluster.must(&["lctl", "set_param", "-P", "-d", "osc.*OST0000*.max_rpcs_in_flight"])?;
        cluster.down()?;
        cluster.up()?;
        all_become(cluster, dirty, 1, "24")?;
        all_become(cluster, "osc.*OST0001*.max_rpcs_in_flight", 1, "12")?;
        all_become(cluster, "obdfilter.sheen-OST0000.degraded", 1, "1")?;
        let left = values(cluster, window)?;
        ensure(left != ["5"], || format!("{window} is still {left:?}"))?;
        let left = values(cluster, requests)?;
        ensure(left.len() == 2 && left[0] != "9", || format!("{requests} is still {left:?}"))
    });
}

#[test]
fn times_are_set_for_a_process_and_for_one_device() {
    scene("parameter-times", 1, LIMIT, |cluster| {
        let refused = |setting: &str, errno: &str| -> Outcome {
            let refused = cluster.run(&["lctl", "set_param", setting])?;
            ensure(!refused.status.success() && refused.output.contains(errno), || {
                format!("{setting}: {}", refused.output)
            })
        };
        refused("at_min=-1", "Invalid argument")?;
        refused("at_min=4294967296", "out of range")?;
        // The mount shows it, or the server: the name is the same.
        cluster.must(&["lctl", "set_param", "timeout=40"])?;
        all_become(cluster, "timeout", 1, "40")?;
        all_become(cluster, "ping_interval", 1, "10")?;
        // What is expected of a target is never less than this device's own least.
        let expected = || -> Outcome<bool> {
            let text = cluster.must(&["lctl", "get_param", "-n", "osc.*.timeouts"])?;
            let portal = text.lines().find(|line| line.starts_with("portal"));
            let cur = portal.and_then(|line| line.split_whitespace().nth(4)).ok_or(text.clone())?;
            Ok(cur.parse::<u32>().is_ok_and(|seconds| seconds >= 17))
        };
        ensure(!expected()?, || "17 s are expected before".to_owned())?;
        cluster.must(&["lctl", "set_param", "osc.*.at_min=17"])?;
        ensure(expected()?, || "less than 17 s are expected".to_owned())?;
        // The MDT hears of the mount every second; long before it would by itself.
        let pings = || -> Outcome<u64> {
            let text = cluster.must(&["lctl", "get_param", "-n", "mdc.*.stats"])?;
            let line = text.lines().find(|line| line.starts_with("obd_ping"));
            let count = line.and_then(|line| line.split_whitespace().nth(1));
            Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
        };
        let before = pings()?;
        cluster.must(&["lctl", "set_param", "ping_interval=1"])?;
        let seen = wait_until("pings", Duration::from_secs(8), || {
            pings().is_ok_and(|now| now >= before + 3)
        });
        seen.map_err(|error| format!("{error}: {before} pings, then {:?}", pings()))
    });
}

#[test]
fn an_ost_is_turned_off_and_on_and_left_alone() {
    scene("resting", 2, LIMIT, |cluster| {
        let on = |index: u16| -> Outcome<std::path::PathBuf> {
            let path = cluster.mnt().join(format!("on{index}"));
            let (number, text) = (index.to_string(), path.to_string_lossy().into_owned());
            cluster.must(&["lfs", "setstripe", "-c", "1", "-i", &number, &text])?;
            fs::write(&path, [7; 100_000]).context("write")?;
            fs::File::open(&path).and_then(|file| file.sync_all()).context("fsync")?;
            Ok(path)
        };
        let (one, two) = (on(0)?, on(1)?);
        cluster.must(&["lctl", "set_param", "osc.*OST0001*.active=0"])?;
        all_become(cluster, "osc.*OST0001*.active", 1, "0")?;
        let refused = fs::read(&two).err().and_then(|error| error.raw_os_error());
        ensure(refused == Some(5), || format!("reading an inactive OST: {refused:?}"))?;
        fs::read(&one).context("the other OST")?;
        let shown = cluster.must(&["lfs", "df", &cluster.mnt().to_string_lossy()])?;
        ensure(
            shown.contains("OST0001_UUID       : Input/output error") || !shown.contains("[OST:1]"),
            || format!("an inactive OST is counted: {shown}"),
        )?;
        cluster.must(&["lctl", "set_param", "osc.*OST0001*.active=1"])?;
        let back = wait_until("the OST", Duration::from_secs(20), || {
            fs::read(&two).is_ok_and(|data| data == [7; 100_000])
        });
        back.map_err(|error| format!("{error}: {:?}", fs::read(&two).map(|data| data.len())))?;

        // Without locks and use the connections go, and come back with the next need.
        let is = |state: &str| {
            values(cluster, "osc.*.ost_server_uuid")
                .is_ok_and(|all| all.iter().all(|line| line.ends_with(state)))
        };
        cluster.must(&["lctl", "set_param", "osc.*.idle_timeout=1"])?;
        cluster.drop_locks()?;
        wait_until("IDLE", Duration::from_secs(30), || is("IDLE"))?;
        let all = values(cluster, "lov.*.activeobd")?;
        ensure(all == ["2"], || format!("idle OSTs are not active: {all:?}"))?;
        let read = fs::read(&two).context("read")?;
        ensure(read == [7; 100_000], || "other data".to_owned())?;
        let refused = cluster.run(&["lctl", "set_param", "osc.*.idle_timeout=51"])?;
        ensure(!refused.status.success(), || "51 s are too many".to_owned())?;
        cluster.must(&["lctl", "set_param", "osc.*.idle_timeout=0"])?;
        cluster.must(&["lctl", "set_param", "osc.*.idle_connect=1"])?;
        wait_until("FULL", Duration::from_secs(10), || is("FULL"))
    });
}

#[test]
fn all_locks_are_written_into_the_log_when_asked_for() {
    scene("locks-dump", 1, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("file"), "data").context("write")?;
        let has_locks = |log: &str| {
            let text = fs::read_to_string(cluster.dir().join("run").join(log)).unwrap_or_default();
            text.lines().any(|line| line.contains("lock [0x"))
        };
        let (server, mount) = ("server.log", "mount.log");
        ensure(!has_locks(server) && !has_locks(mount), || {
            "locks that no client asked for".into()
        })?;
        cluster.must(&["lctl", "set_param", "ldlm.dump_namespaces=1"])?;
        wait_until("locks in both logs", SEEN, || has_locks(server) && has_locks(mount))
    });
}

#[test]
fn parameters_for_good_are_the_mgs_s_business() {
    scene("parameters-wrong", 1, LIMIT, |cluster| {
        for (words, code, wanted) in [
            ("conf_param sheen.osc.max_dirty_mb=24", 22, "error: conf_param: Invalid argument"),
            ("conf_param other.llite.x=1", 22, "error: conf_param: Invalid argument"),
            ("conf_param sheen-OST0009.ost.x=1", 19, "error: conf_param: No such device"),
            ("conf_param sheen.llite.x", 22, "error: conf_param: Invalid argument"),
            ("set_param -P x", 22, "error: executing set_param: Invalid argument"),
            (
                "set_param -P obdfilter.*.mdt_identity=MDT0000:none",
                22,
                "executing set_param: Invalid",
            ),
            (
                "conf_param sheen-OST0000.ost.mdt_identity=MDT0000:none",
                22,
                "is an order and no setting",
            ),
            ("set_param -P -d mdt.*.evict_client", 0, ""),
            ("set_param osc.*.max_dirty_mb=-1", 22, "'osc/*/max_dirty_mb'='-1': Invalid argument"),
            (
                "set_param osc.*.max_rpcs_in_flight=100000",
                34,
                "'osc/*/max_rpcs_in_flight'='100000': Numerical result out of range",
            ),
        ] {
            let words: Vec<&str> = std::iter::once("lctl").chain(words.split(' ')).collect();
            let finished = cluster.run(&words)?;
            ensure(
                finished.status.code() == Some(code) && finished.output.contains(wanted),
                || format!("{words:?}: {}\n{}", finished.status, finished.output),
            )?;
        }
        Ok(())
    });
}
