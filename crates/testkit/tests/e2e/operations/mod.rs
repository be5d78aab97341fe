//! docs/OPERATIONS.md, typed as it stands on machines of namespaces: what it says works, and shows what it says.

mod machines;
mod page;
mod units;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_workloads::process::{tail, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure, root};

use machines::Machines;
use page::Step;
use units::Manager;

const LIMIT: Duration = Duration::from_secs(600);
/// How long what a command shows may take to become what the page says.
const PATIENCE: Duration = Duration::from_secs(60);
/// As the page introduces them.
const MACHINES: [(&str, &str); 4] =
    [("mds1", "10.0.0.1"), ("oss1", "10.0.0.11"), ("oss2", "10.0.0.12"), ("client1", "10.0.0.101")];

/// Lines of a log that say more than that all is well, and may stand there: what the page itself breaks.
const FACTS: [&str; 4] = [
    // It was killed.
    "detached a mount whose process has ended",
    // `abort_recovery`, because the copy of the MDT knows a client that is unmounted.
    "an operator ends recovery, evicting the clients that have not finished",
    "client did not finish recovery in time, evicting it",
    // What is newer than that copy.
    "the MDT knows no file that has these objects, and they hold data: they are kept",
];

#[test]
fn what_the_page_on_operations_says_can_be_typed() {
    if !sheen_skip::needs_root() {
        return;
    }
    // Of the cluster only its folder is used, and that it is removed.
    let cluster = std::sync::Arc::new(Cluster::prepare("operations", 1, &[]).expect("a folder"));
    play(&cluster, LIMIT, |cluster| {
        let page = root().join("docs/OPERATIONS.md");
        let page = std::fs::read_to_string(&page).context(page.display())?;
        let machines = Machines::start(&cluster.dir(), &MACHINES)?;
        let mut manager = Manager::default();
        let steps = page::steps(&page);
        ensure(steps.len() > 20, || "the page has lost its steps".to_owned())?;
        for step in &steps {
            take(step, &machines, &mut manager).map_err(|error| {
                format!("OPERATIONS.md:{}: {}# {}: {error}", step.line, step.machine, step.command)
            })?;
        }
        drop(manager);
        logs_are_quiet(machines.folder())
    });
}

fn take(step: &Step, machines: &Machines, manager: &mut Manager) -> Outcome {
    let machine = machines.get(&step.machine)?;
    if let Some(words) = step.command.strip_prefix("systemctl ") {
        return manager.systemctl(machines, &step.machine, &words.split(' ').collect::<Vec<_>>());
    }
    let mut line = step.command.clone();
    if let Some(rest) = line.strip_prefix("journalctl -u ") {
        let (unit, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        line = format!("cat {} {rest}", machine.log(unit).display());
    }
    if step.shown.is_empty() {
        return machine.must(&line).map(drop);
    }
    let mut last = String::new();
    let shown = wait_until("what the page shows", PATIENCE, || {
        let typed = machine.types(&line).map(|typed| typed.output);
        last = typed.unwrap_or_else(|error| error);
        page::shows(&last, &step.shown).is_ok()
    });
    shown.map_err(|error| {
        let why = page::shows(&last, &step.shown).err().unwrap_or_default();
        format!("{error}: {why} in\n{}", tail(&last, 40))
    })
}

/// No log has an error or a warning that is not a fact of what the page does.
fn logs_are_quiet(folder: &Path) -> Outcome {
    let mut loud = Vec::new();
    for (machine, _) in MACHINES {
        let logs = std::fs::read_dir(folder.join(machine).join("log")).context(machine)?;
        let is_log = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
        for path in logs.flatten().map(|entry| entry.path()).filter(is_log) {
            let log = text(&path);
            let lines =
                log.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR "));
            let lines = lines.filter(|line| !FACTS.iter().any(|fact| line.contains(fact)));
            loud.extend(lines.map(|line| format!("{machine}: {line}")));
        }
    }
    ensure(loud.is_empty(), || format!("warnings and errors:\n{}", loud.join("\n")))
}
