//! A browser without a window, to look at pages as a person would.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

/// Names of Chromium on the path.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A page of ours is there in a second or two.
const LIMIT: Duration = Duration::from_secs(90);

/// Chromium.
#[derive(Debug)]
pub struct Browser(OsString);

/// What the browser made of a page.
#[derive(Debug)]
pub struct Seen {
    /// Its document, after all scripts.
    pub document: String,
    /// Lines of the console.
    pub console: Vec<String>,
    /// What the page asked other places for.
    pub requests: usize,
}

impl Browser {
    /// `$SHEEN_CHROMIUM`, which then must work, or else what is on the path; `None` if nothing is.
    #[must_use]
    pub fn find() -> Option<Self> {
        if let Some(program) = std::env::var_os("SHEEN_CHROMIUM") {
            return Some(Self(program));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |name: &&str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
        NAMES.into_iter().find(is_there).map(|name| Self(name.into()))
    }

    /// Opens a file, and returns what is to be seen. `folder` is for the browser's own files.
    ///
    /// # Errors
    /// It cannot be run, or shows nothing.
    pub fn open(&self, page: &Path, folder: &Path) -> Outcome<Seen> {
        fs::create_dir_all(folder).context(folder.display())?;
        let [log, document, errors] =
            ["net.json", "document", "errors"].map(|name| folder.join(name));
        let mut command = Command::new(&self.0);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-sync",
        ]);
        command.args(["--disable-background-networking", "--disable-component-update"]);
        // Whatever it wants for itself stays here: no name leads anywhere.
        command.args(["--disable-default-apps", "--host-resolver-rules=MAP * ~NOTFOUND"]);
        command.args(["--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.arg(format!("--log-net-log={}", log.display()));
        command.arg(format!("file://{}", page.display()));
        command.stdin(Stdio::null());
        command.stdout(fs::File::create(&document).context(document.display())?);
        command.stderr(fs::File::create(&errors).context(errors.display())?);
        let mut child = command.spawn().context(format!("{:?}", self.0))?;
        let ended = wait_until("a page", LIMIT, || child.try_wait().is_ok_and(|it| it.is_some()));
        if ended.is_err() {
            child.kill().context("chromium")?;
        }
        child.wait().context("chromium")?;
        ended?;
        let read = |path: &Path| {
            fs::read(path)
                .context(path.display())
                .map(|text| String::from_utf8_lossy(&text).into_owned())
        };
        let (document, errors, log) = (read(&document)?, read(&errors)?, read(&log)?);
        ensure(document.contains("</html>"), || format!("no page: {document}\n{errors}"))?;
        let console = errors.lines().filter(|line| line.contains(":CONSOLE"));
        // A file's requests come from no origin that has a name; the browser's own have none at all.
        let requests = log.matches("\"initiator\":\"null\"").count();
        Ok(Seen { console: console.map(str::to_owned).collect(), document, requests })
    }
}
