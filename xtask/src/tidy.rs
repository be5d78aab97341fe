//! `cargo xtask tidy`: the rules of the house, checked by machine.

mod cited_tests;
mod tables;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use crate::modules::{self, Source};
use crate::shell::{self, Outcome, cargo, exists, root};

/// Lines of one file; beyond this a file has more than one subject.
const FILE_LINES_MAX: usize = 1000;

/// What to leave out.
#[derive(Args)]
pub(crate) struct Options {
    /// Only the checks that read text: no compiler, no formatter
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Deserialize)]
struct Layers {
    #[serde(rename = "crate")]
    crates: BTreeMap<String, Crate>,
    text: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Crate {
    layer: Layer,
    #[serde(default)]
    beside: Vec<String>,
    /// Its modules, lowest first: each may use those before it.
    #[serde(default)]
    modules: Vec<String>,
    /// Modules that may use each other, such as those that one type is implemented in.
    #[serde(default)]
    circles: Vec<Vec<String>>,
    #[serde(default)]
    host: bool,
    #[serde(default, rename = "unsafe")]
    may_be_unsafe: bool,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(untagged)]
enum Layer {
    Number(u8),
    Proof(ProofWord),
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum ProofWord {
    Proof,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

pub(crate) fn run(options: &Options) -> Outcome {
    let text = read(&root().join("layers.toml"))?;
    let layers: Layers = toml::from_str(&text).map_err(|error| format!("layers.toml: {error}"))?;
    let mut faults = Vec::new();
    check_members(&layers, &mut faults)?;
    for (name, rules) in &layers.crates {
        check_dependencies(name, rules, &layers, &mut faults)?;
        let folder = root().join("crates").join(name).join("src");
        let files = sources(&folder)?;
        for file in &files {
            check_source(file, rules, &layers.text, &mut faults)?;
        }
        check_modules(name, rules, &folder, &files, &mut faults)?;
    }
    cited_tests::check(&mut faults)?;
    tables::check(&mut faults)?;
    words::check(&mut faults)?;
    if !faults.is_empty() {
        return Err(format!("{} faults\n{}", faults.len(), faults.join("\n")));
    }
    eprintln!("tidy: {} crates keep the layers", layers.crates.len());
    if options.quick {
        return Ok(());
    }
    shell::run(cargo(&["fmt", "--all", "--check"]))?;
    // In the profile of the gate, which has what compiles at build time (macros, build scripts and the C library of a test)
    // already: 170 s of processor time.
    let check = |command, arguments: &[&str]| {
        let profile = shell::Profile::Gate.name();
        let mut check = cargo(&[command, "--quiet", "--profile", profile, "--workspace"]);
        check.args(arguments);
        check
    };
    let no_warnings = ["--", "-D", "warnings"];
    shell::run(check("clippy", &[&["--all-targets"][..], &no_warnings].concat()))?;
    // No default targets, so clippy sees them by name.
    // Of the workspace: alone, the package would have all below it checked with other features, once more.
    let by_name = ["--test", "e2e", "--test", "suites"];
    shell::run(check("clippy", &[&by_name[..], &no_warnings].concat()))?;
    let mut documents = check("doc", &["--no-deps"]);
    documents.env("RUSTDOCFLAGS", "-D warnings");
    shell::run(documents)?;
    check_licenses()?;
    check_wasm(&layers)
}

/// Layers 0 and 1 compute only; a target without an operating system shows it.
fn check_wasm(layers: &Layers) -> Outcome {
    const TARGET: &str = "wasm32-unknown-unknown";
    if !has_target(TARGET) {
        eprintln!(
            "tidy: {TARGET} is not installed; run `rustup target add {TARGET}` to check layers 0 and 1 on it"
        );
        return Ok(());
    }
    let profile = shell::Profile::Gate.name();
    let mut build = cargo(&["check", "--quiet", "--profile", profile, "--target", TARGET]);
    for (name, rules) in &layers.crates {
        if matches!(rules.layer, Layer::Number(0 | 1)) {
            build.args(["--package", &format!("sheen-{name}")]);
        }
    }
    shell::run(build)
}

fn has_target(target: &str) -> bool {
    let sysroot = shell::command("rustc").args(["--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&sysroot).join("lib/rustlib").join(target).is_dir()
    })
}

fn check_licenses() -> Outcome {
    if exists("cargo-deny") || home_has("cargo-deny") {
        return shell::run(cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"]));
    }
    eprintln!(
        "tidy: cargo-deny is not installed; run `cargo install --locked cargo-deny` to check licenses"
    );
    Ok(())
}

fn home_has(program: &str) -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.is_some_and(|home| home.join("bin").join(program).is_file())
}

fn check_members(layers: &Layers, faults: &mut Vec<String>) -> Outcome {
    let folder = root().join("crates");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !layers.crates.contains_key(&name) {
            faults.push(format!("crates/{name}: stands in no layer of layers.toml"));
        }
    }
    Ok(())
}

fn check_dependencies(
    name: &str,
    rules: &Crate,
    layers: &Layers,
    faults: &mut Vec<String>,
) -> Outcome {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let manifest: Manifest =
        toml::from_str(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
    for dependency in manifest.dependencies.keys() {
        let Some(other) = dependency.strip_prefix("sheen-") else { continue };
        let Some(below) = layers.crates.get(other) else {
            faults.push(format!("crates/{name}: depends on {other}, which stands in no layer"));
            continue;
        };
        let allowed = match (rules.layer, below.layer) {
            (Layer::Proof(_), _) => true,
            (Layer::Number(_), Layer::Proof(_)) => false,
            (Layer::Number(own), Layer::Number(lower)) => {
                lower < own || (lower == own && rules.beside.iter().any(|entry| entry == other))
            }
        };
        if !allowed {
            faults.push(format!("crates/{name}: may not depend on {other} (layers.toml)"));
        }
    }
    Ok(())
}

fn check_source(
    file: &Path,
    rules: &Crate,
    banned: &BTreeMap<String, String>,
    faults: &mut Vec<String>,
) -> Outcome {
    let text = read(file)?;
    let shown = file.strip_prefix(root()).unwrap_or(file).display().to_string();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{shown}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
    let is_test = shown.ends_with("tests.rs") || shown.contains("/tests/");
    let host = rules.host || rules.layer == Layer::Number(4);
    for (number, code) in modules::code_of(&text).lines().enumerate() {
        let at = format!("{shown}:{}", number + 1);
        if !host && !is_test {
            for (word, instead) in banned {
                if code.contains(word.as_str()) {
                    faults.push(format!("{at}: `{word}` below the hosts; use {instead}"));
                }
            }
        }
        let unsafe_code = ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|w| code.contains(w));
        if unsafe_code && !rules.may_be_unsafe {
            faults.push(format!("{at}: unsafe code outside the edge crates"));
        }
        if raw_errno(code) && !shown.starts_with("crates/types") {
            faults.push(format!("{at}: a raw error number; name it in types::Errno"));
        }
    }
    Ok(())
}

fn check_modules(
    name: &str,
    rules: &Crate,
    folder: &Path,
    files: &[PathBuf],
    faults: &mut Vec<String>,
) -> Outcome {
    let mut sources = Vec::new();
    for file in files {
        let path = file.strip_prefix(folder).unwrap_or(file).display().to_string();
        sources.push(Source { path, text: read(file)? });
    }
    let shown = format!("crates/{name}/src");
    if !rules.modules.is_empty() {
        faults.extend(modules::faults(&shown, &rules.modules, &sources));
    }
    faults.extend(modules::circles(&shown, &rules.circles, &sources));
    Ok(())
}

/// `Errno(5)`, or a status compared with a bare negative number.
fn raw_errno(code: &str) -> bool {
    code.split("Errno(").skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    files(folder, "rs")
}

/// Files below `folder` whose names end with `extension`; not what cargo has built.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") || path.ends_with("crates/target") {
                found.extend(files(&path, extension)?);
            }
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
