//! A service manager for units of `contrib/systemd`, as far as these use one: it starts what they say, with the
//! rights that they leave, waits until that has notified it, and ends it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sheen_workloads::process::{tail, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure, root};

use super::machines::{Machine, Machines};

const PATIENCE: Duration = Duration::from_secs(120);
/// How long a message may take to come before we look whether the process has ended.
const LOOK: Duration = Duration::from_millis(200);

/// A unit that was started.
struct StartedUnit {
    child: Child,
    socket: UnixDatagram,
    path: PathBuf,
}

impl Drop for StartedUnit {
    fn drop(&mut self) {
        // It may have ended; else it is ended by force with its machine.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.path);
    }
}

/// What runs, by machine and unit.
#[derive(Default)]
pub(super) struct Manager {
    services: BTreeMap<(String, String), StartedUnit>,
}

impl Manager {
    /// `systemctl WORDS` on `machine`.
    pub(super) fn systemctl(&mut self, machines: &Machines, name: &str, words: &[&str]) -> Outcome {
        let machine = machines.get(name)?;
        match *words {
            ["start", unit] | ["enable", "--now", unit] => self.start(machine, unit),
            ["stop", unit] | ["disable", "--now", unit] => self.stop(machine, unit),
            ["restart", unit] => {
                self.stop(machine, unit)?;
                self.start(machine, unit)
            }
            ["kill", "-s", "KILL", unit] => self.kill(machine, unit),
            _ => Err(format!("the test's manager has no systemctl {}", words.join(" "))),
        }
    }

    fn start(&mut self, machine: &Machine, name: &str) -> Outcome {
        let unit = Unit::read(name)?;
        let key = (machine.name.clone(), name.to_owned());
        ensure(!self.services.contains_key(&key), || format!("{name} runs"))?;
        let service = unit.start(machine)?;
        self.services.insert(key, service);
        Ok(())
    }

    fn stop(&mut self, machine: &Machine, name: &str) -> Outcome {
        let mut service = self.take(machine, name)?;
        let pid = Pid::from_child(&service.child);
        kill_process(pid, Signal::TERM).context(name)?;
        service.wait(name)?;
        let (status, log) = (service.child.wait().context(name)?, text(&machine.log(name)));
        ensure(status.success(), || format!("{name}: {status}\n{}", tail(&log, 20)))?;
        ensure(service.hears("STOPPING=1"), || format!("{name} has not said that it stops"))
    }

    /// Kills it; the unit says that it comes back.
    fn kill(&mut self, machine: &Machine, name: &str) -> Outcome {
        let mut service = self.take(machine, name)?;
        service.child.kill().context(name)?;
        service.wait(name)?;
        drop(service);
        let unit = Unit::read(name)?;
        ensure(unit.value("Restart") == Some("on-failure"), || format!("{name} stays down"))?;
        self.start(machine, name)
    }

    fn take(&mut self, machine: &Machine, name: &str) -> Outcome<StartedUnit> {
        let key = (machine.name.clone(), name.to_owned());
        self.services.remove(&key).ok_or(format!("{name} does not run on {}", machine.name))
    }
}

impl StartedUnit {
    fn wait(&mut self, name: &str) -> Outcome {
        wait_until(&format!("the end of {name}"), PATIENCE, || {
            self.child.try_wait().is_ok_and(|status| status.is_some())
        })
    }

    /// Whether a message with this line is among those that have come.
    fn hears(&self, wanted: &str) -> bool {
        let mut bytes = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            if String::from_utf8_lossy(&bytes[..length]).lines().any(|line| line == wanted) {
                return true;
            }
        }
        false
    }
}

/// A file of `contrib/systemd`, for one instance.
struct Unit {
    name: String,
    instance: String,
    values: Vec<(String, String)>,
}

impl Unit {
    /// `NAME@INSTANCE`.
    fn read(name: &str) -> Outcome<Self> {
        let (template, instance) = name.split_once('@').ok_or(format!("{name}: no instance"))?;
        let path = root().join("contrib/systemd").join(format!("{template}@.service"));
        let file = fs::read_to_string(&path).context(path.display())?;
        let pairs = file.lines().filter(|line| !line.starts_with('#'));
        let pairs = pairs.filter_map(|line| line.split_once('='));
        let values = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Ok(Self { name: name.to_owned(), instance: instance.to_owned(), values })
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = String> + 'a {
        let path = format!("/{}", self.instance.replace('-', "/"));
        let values = self.values.iter().filter(move |(name, _)| name == key);
        values.map(move |(_, value)| value.replace("%i", &self.instance).replace("%f", &path))
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.values.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Starts it and waits until it says that it is ready.
    fn start(&self, machine: &Machine) -> Outcome<StartedUnit> {
        for path in self.all("AssertPathExists") {
            machine.must(&format!("test -e {path}"))?;
        }
        for folder in self.all("RuntimeDirectory").map(|name| format!("/run/{name}")) {
            machine.must(&format!("mkdir -p -m 700 {folder}"))?;
        }
        for line in self.all("ExecStartPre") {
            let line = line.strip_prefix('-').map_or(line.clone(), |rest| format!("{rest} || :"));
            machine.must(&line)?;
        }
        let path = std::env::temp_dir().join(format!(
            "sheen-{}-{}-{}",
            std::process::id(),
            machine.name,
            self.name
        ));
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).context(path.display())?;
        socket.set_read_timeout(Some(LOOK)).context("a time limit")?;
        let words = self.words(&self.environment(machine)?)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let log = machine.log(&self.name);
        let log_file = File::options().create(true).append(true).open(&log).context("log")?;
        let mut command = machine.command(&words);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "180000000");
        command.stdin(Stdio::null()).stdout(log_file.try_clone().context("log")?).stderr(log_file);
        let child = command.spawn().context(&self.name)?;
        let mut service = StartedUnit { child, socket, path };
        wait_until(&format!("{} is ready", self.name), PATIENCE, || {
            service.hears("READY=1") || service.child.try_wait().is_ok_and(|it| it.is_some())
        })
        .map_err(|error| format!("{error}\n{}", tail(&text(&log), 20)))?;
        let ended = service.child.try_wait().context(&self.name)?;
        let why = || format!("{}: {ended:?}\n{}", self.name, tail(&text(&log), 20));
        ensure(ended.is_none(), why)?;
        Ok(service)
    }

    fn environment(&self, machine: &Machine) -> Outcome<BTreeMap<String, String>> {
        let mut lines: Vec<String> = self.all("Environment").collect();
        for path in self.all("EnvironmentFile") {
            lines.extend(machine.must(&format!("cat {path}"))?.lines().map(str::to_owned));
        }
        let lines = lines.iter().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// The command line, with the rights that the unit leaves in front.
    fn words(&self, environment: &BTreeMap<String, String>) -> Outcome<Vec<String>> {
        let mut words = vec!["setpriv".to_owned()];
        if self.value("NoNewPrivileges") == Some("yes") {
            words.push("--no-new-privs".to_owned());
        }
        if let Some(kept) = self.value("CapabilityBoundingSet") {
            let kept = kept.split(' ').map(|name| name.trim_start_matches("CAP_").to_lowercase());
            let kept: String = kept.map(|name| format!(",+{name}")).collect();
            words.push(format!("--bounding-set=-all{kept}"));
        }
        let line = self.all("ExecStart").next().ok_or("no ExecStart")?;
        for word in line.split(' ').map(|word| word.trim_matches('"')) {
            match word.strip_prefix('$').map(|name| name.strip_prefix('{').unwrap_or(name)) {
                None => words.push(word.to_owned()),
                Some(name) => {
                    let name = name.trim_end_matches('}');
                    let value = environment.get(name).ok_or(format!("{name} is not set"))?;
                    // In braces it is one word, even an empty one.
                    match word.contains('{') {
                        true => words.push(value.clone()),
                        false => words.extend(value.split_whitespace().map(str::to_owned)),
                    }
                }
            }
        }
        Ok(words)
    }
}

#[test]
fn command_lines_are_those_of_systemd() {
    let unit = Unit::read("sheen-server@oss1").expect("the unit");
    let pairs = [("NID", "10.0.0.1@tcp"), ("OPTIONS", ""), ("TARGETS", "/a /b")];
    let environment = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let words = unit.words(&environment).expect("words").join(" ");
    assert!(words.ends_with("/usr/bin/sheen server --nid 10.0.0.1@tcp /a /b"), "{words}");
    assert!(words.contains("--bounding-set=-all,+net_bind_service"), "{words}");
    let mount = Unit::read("sheen-mount@mnt-data").expect("the unit");
    let pairs = [("SOURCE", "a:/b"), ("OPTIONS", "")];
    let environment = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let words = mount.words(&environment).expect("words");
    let end = ["mount", "--foreground", "-o", "", "a:/b", "/mnt/data"];
    assert_eq!(words[words.len() - end.len()..], end);
}
