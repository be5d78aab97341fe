//! PostgreSQL and fio on a mount that is upgraded, over servers that are killed, stopped and exchanged: no
//! transaction fails or is lost.
#![allow(clippy::disallowed_methods, reason = "programs work in real time while it happens")]

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Context, Outcome, Size, ensure, process};

use crate::rights::UNPRIVILEGED;

const LIMIT: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(120);
/// How long programs work between two changes of what is below them.
const PAUSE: Duration = Duration::from_millis(1500);

/// The folder of the server's programs, which Debian does not put on the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_all = |folder: &PathBuf| {
        ["postgres", "initdb", "pgbench", "psql", "pg_amcheck", "pg_checksums"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    debian.chain(std::env::split_paths(&path)).find(has_all)
}

/// A database on a mount, of a user who is not root, as PostgreSQL wants it.
struct Database<'a> {
    cluster: &'a Cluster,
    programs: PathBuf,
    data: PathBuf,
    /// Its socket lies here: a path of at most 107 bytes.
    home: PathBuf,
    server: Option<Child>,
}

impl<'a> Database<'a> {
    /// Makes a database with checksums of its pages, and starts its server.
    fn start(cluster: &'a Cluster, programs: PathBuf) -> Outcome<Self> {
        let home = std::env::temp_dir().join(format!("sheen-postgres-{}", std::process::id()));
        let top = cluster.mnt().join("postgres");
        for folder in [&home, &top] {
            fs::create_dir(folder).context(folder.display())?;
            chown(folder, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).context("chown")?;
        }
        let mut database = Self { cluster, programs, data: top.join("data"), home, server: None };
        database.must("initdb", &["--data-checksums", "--username=postgres", "--auth=trust"])?;
        let mut server = database.command("postgres");
        server.args(["-c", "listen_addresses=", "-c", "shared_buffers=16MB"]);
        server.args(["-c", "checkpoint_timeout=30s", "-k"]).arg(&database.home);
        let log = File::create(cluster.logs().join("postgres.log")).context("postgres.log")?;
        server.stdout(Stdio::null()).stderr(log);
        database.server = Some(server.spawn().context("postgres")?);
        process::wait_until("PostgreSQL", PATIENCE, || {
            database.must("psql", &["--command=select 1"]).is_ok()
        })?;
        Ok(database)
    }

    /// May search what lies above the mount, which may be in a folder of root's.
    fn command(&self, name: &str) -> Command {
        let user = UNPRIVILEGED.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.args(["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]);
        command.arg(self.programs.join(name)).current_dir(&self.home);
        command.env("PGDATA", &self.data).env("PGHOST", &self.home).env("PGUSER", "postgres");
        command
    }

    fn must(&self, name: &str, arguments: &[&str]) -> Outcome<String> {
        let log = self.cluster.logs().join(name);
        process::must(self.command(name).args(arguments), &log, PATIENCE)
    }

    fn number(&self, query: &str) -> Outcome<i64> {
        let arguments = ["--no-align", "--tuples-only", "--command", query];
        self.must("psql", &arguments)?.trim().parse().context(query)
    }

    /// Works until `stops`; no transaction may fail. Answers how many were made.
    fn work(&self, stops: &AtomicBool) -> Outcome<i64> {
        let mut made = 0;
        while !stops.load(Ordering::Relaxed) {
            let said = self.must("pgbench", &["--no-vacuum", "--client=4", "--time=2"])?;
            let number = |label: &str| -> Outcome<i64> {
                let rest = said.lines().find_map(|line| line.strip_prefix(label));
                let first = rest.and_then(|rest| rest.split_whitespace().next());
                first.and_then(|number| number.parse().ok()).ok_or_else(|| said.clone())
            };
            ensure(number("number of failed transactions:")? == 0, || said.clone())?;
            made += number("number of transactions actually processed:")?;
        }
        Ok(made)
    }

    /// Every transaction that was acknowledged is there, once and whole.
    fn holds(&self, transactions: i64) -> Outcome {
        let found = self.number("select count(*) from pgbench_history")?;
        ensure(found == transactions, || format!("{found} of {transactions} transactions"))?;
        let moved = self.number("select sum(delta) from pgbench_history")?;
        for (column, table) in [("a", "accounts"), ("b", "branches"), ("t", "tellers")] {
            let sum = self.number(&format!("select sum({column}balance) from pgbench_{table}"))?;
            ensure(sum == moved, || format!("{table}: {sum} instead of {moved}"))?;
        }
        let all = ["--install-missing", "--heapallindexed", "postgres"];
        self.must("pg_amcheck", &all).map(drop)
    }

    fn stop(&mut self) -> Outcome {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        kill_process(Pid::from_child(&server), Signal::INT).context("stop PostgreSQL")?;
        let status = server.wait().context("PostgreSQL")?;
        ensure(status.success(), || format!("PostgreSQL: {status}"))
    }

    fn has_whole_pages(&self) -> Outcome {
        self.must("pg_checksums", &["--check"]).map(drop)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Its processes end with it; there is nothing to be saved.
            let _ = kill_process(Pid::from_child(&server), Signal::QUIT);
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Writes and verifies, until `stops`.
fn verified_writes(cluster: &Cluster, stops: &AtomicBool) -> Outcome {
    let top = cluster.mnt().join("fio");
    fs::create_dir(&top).context("mkdir")?;
    while !stops.load(Ordering::Relaxed) {
        let mut fio = Command::new("fio");
        fio.args(["--name=verify", "--rw=randwrite", "--bsrange=4k-64k", "--size=8m"]);
        fio.args(["--fsync=32", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
        fio.arg("--directory").arg(&top).current_dir(cluster.logs());
        process::must(&mut fio, &cluster.logs().join("fio"), PATIENCE)?;
    }
    Ok(())
}

fn upgrade(cluster: &Cluster, to: &Path) -> Outcome {
    let former = cluster.mount_pid()?;
    let mut command = Command::new(to);
    command.arg("upgrade").arg(cluster.mnt()).env("SHEEN_RUN_DIR", cluster.sockets());
    process::must(&mut command, &cluster.logs().join("upgrade"), PATIENCE)?;
    let now = cluster.mount_pid()?;
    let runs = fs::read_link(format!("/proc/{now}/exe")).context("exe")?;
    ensure(now != former && runs == to, || format!("{} serves it", runs.display()))
}

/// Starts the servers as those of `program`, after `signal` has ended them.
fn restart(cluster: &Cluster, signal: Signal, program: &Path) -> Outcome {
    let former = cluster.server_pid()?;
    let number = Pid::from_raw(former).ok_or("no server")?;
    kill_process(number, signal).context("signal")?;
    process::wait_until("the servers' end", PATIENCE, || !process::is_alive(former))?;
    let mut up = Command::new(program);
    up.arg("up").arg("--dir").arg(cluster.dir()).arg("--mount").arg(cluster.mnt());
    up.env("SHEEN_RUN_DIR", cluster.sockets());
    process::must(&mut up, &cluster.logs().join("up"), PATIENCE).map(drop)
}

/// Exchanges what runs below the programs by another version of it, and back.
fn exchange_all(cluster: &Cluster, own: &Path, other: &Path) -> Outcome {
    for _ in 0..Size::asked().of(1, 1, 10) {
        let changes: [&dyn Fn() -> Outcome; 5] = [
            &|| upgrade(cluster, other),
            &|| restart(cluster, Signal::KILL, own),
            &|| restart(cluster, Signal::TERM, other),
            &|| upgrade(cluster, own),
            &|| restart(cluster, Signal::KILL, own),
        ];
        for change in changes {
            thread::sleep(PAUSE);
            change()?;
        }
    }
    thread::sleep(PAUSE);
    Ok(())
}

#[test]
fn postgresql_and_fio_go_on_while_all_below_them_is_exchanged() {
    let Some(programs) = programs() else {
        return sheen_skip::skip("PostgreSQL (with pg_amcheck: 14 or later) is not installed");
    };
    if !sheen_skip::needs_root() {
        return;
    }
    scene("postgres", 2, LIMIT, move |cluster| {
        let own = program()?.canonicalize().context("the program")?;
        let other = cluster.logs().canonicalize().context("logs")?.join("sheen");
        fs::copy(&own, &other).context("copy")?;
        let mut database = Database::start(cluster, programs)?;
        database.must("pgbench", &["--initialize", "--quiet", "--scale=1"])?;
        let stops = AtomicBool::new(false);
        let made = thread::scope(|scope| -> Outcome<i64> {
            let transactions = scope.spawn(|| database.work(&stops));
            let writes = scope.spawn(|| verified_writes(cluster, &stops));
            let exchanged = exchange_all(cluster, &own, &other);
            if exchanged.is_err() {
                // The programs would wait for servers for ever.
                cluster.end();
            }
            stops.store(true, Ordering::Relaxed);
            let panicked = |_| "panicked".to_owned();
            let made = transactions.join().map_err(panicked)?;
            let written = writes.join().map_err(panicked)?;
            exchanged.and(written).and(made)
        })?;
        println!("postgres: {made} transactions");
        ensure(made > 0, || "no transaction was made".to_owned())?;
        database.holds(made)?;
        database.stop()?;
        database.has_whole_pages()?;
        same_after_restart(cluster)?;
        database.has_whole_pages()
    });
}
