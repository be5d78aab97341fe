//! `cargo xtask demo`: from a clean clone to a mounted file system, and what to type then.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::setup;
use crate::shell::{self, Outcome, Profile, command, program, root};

/// Where the demonstration lives.
#[derive(Args)]
pub(crate) struct Options {
    /// Folder of the targets [default: ~/sheen-demo/targets]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where to mount [default: ~/sheen-demo/mnt]
    #[arg(long)]
    mount: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Outcome {
    setup::for_mount()?;
    shell::build_program(Profile::Release)?;
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    let home = home.join("sheen-demo");
    let dir = options.dir.clone().unwrap_or_else(|| home.join("targets"));
    let mount = options.mount.clone().unwrap_or_else(|| home.join("mnt"));
    let (dir, mount) = (absolute(&dir)?, absolute(&mount)?);
    let program = program(Profile::Release);
    up(&program, &dir, &mount)?;
    println!("\nMounted at {}. Try:\n", mount.display());
    for line in next_steps(&program, &dir, &mount) {
        println!("  {line}");
    }
    Ok(())
}

/// Starts a demonstration aside and types all its next steps, the last of which ends it.
pub(crate) fn check() -> Outcome {
    let folder = root().join("target/e2e").join(format!("demo-{}", std::process::id()));
    let (dir, mount) = (folder.join("targets"), folder.join("mnt"));
    let program = program(Profile::Gate);
    let typed = up(&program, &dir, &mount).and_then(|()| {
        let script = next_steps(&program, &dir, &mount).join("\n");
        let mut shell = command("sh");
        shell.args(["-exc", &script]);
        shell::run(shell)
    });
    if typed.is_err() {
        let mut down = command(&program);
        down.args(["down", "--dir"]).arg(&dir);
        // The first error is the one to report.
        let _ = shell::run(down);
        return typed;
    }
    std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn up(program: &Path, dir: &Path, mount: &Path) -> Outcome {
    for path in [dir, mount] {
        std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let mut up = command(program);
    up.args(["up", "--osts", "4", "--dir"]).arg(dir).arg("--mount").arg(mount);
    shell::run(up)
}

/// Lines for a shell. A test types them all, so each one works.
fn next_steps(program: &Path, dir: &Path, mount: &Path) -> Vec<String> {
    let bin = program.parent().unwrap_or(Path::new(".")).display();
    let (dir, mnt) = (quote(dir), quote(mount));
    vec![
        format!("export PATH={bin}:$PATH"),
        format!("ls -la {mnt}"),
        format!("echo hello > {mnt}/hello && cat {mnt}/hello"),
        format!("sheen lfs df -h {mnt}"),
        format!("sheen lfs setstripe -c 4 {mnt}/wide"),
        format!("dd if=/dev/zero of={mnt}/wide bs=1M count=64 conv=fsync"),
        format!("sheen lfs getstripe {mnt}/wide"),
        "sheen lctl dl".to_owned(),
        "sheen lctl get_param version".to_owned(),
        format!("sheen status --dir {dir}"),
        format!("sheen down --dir {dir}"),
    ]
}

/// A path as one word of a shell.
fn quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}
