//! `lfs osts`, `lfs mdts`: the targets of a file system.

use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::Errno;

use super::mount::Mount;
use crate::output::{Fault, shown_path, text_out};
use sheen_control::api::{Kind, MountTarget, TARGETS};

/// Options of `osts` and `mdts`.
#[derive(Args)]
pub(super) struct List {
    /// A path on a file system [default: all mounted file systems]
    path: Option<PathBuf>,
}

pub(super) fn osts(options: &List) -> Result<(), Fault> {
    list(options, "osts", Kind::Ost)
}

pub(super) fn mdts(options: &List) -> Result<(), Fault> {
    list(options, "mdts", Kind::Mdt)
}

/// A path on another file system lists nothing, as in Lustre.
fn list(options: &List, command: &str, kind: Kind) -> Result<(), Fault> {
    let mounts = match Mount::chosen(options.path.as_deref()) {
        Err(Errno::ENODEV) => return Ok(()),
        Err(errno) => {
            let path = shown_path(options.path.as_deref().unwrap_or(Path::new("")));
            return Err(Fault::new(errno, format!("error: invalid path '{path}': {errno}")));
        }
        Ok(mounts) => mounts,
    };
    mounts.each(command, |mount| {
        let targets: Vec<MountTarget> = mount.ask(TARGETS, &[])?;
        text_out(&listing(kind, &targets));
        Ok(())
    })
}

fn listing(kind: Kind, targets: &[MountTarget]) -> String {
    let mut text = String::from(if kind == Kind::Ost { "OBDS:\n" } else { "MDTS:\n" });
    for target in targets.iter().filter(|target| target.kind == kind) {
        let state = if target.active { "ACTIVE" } else { "INACTIVE" };
        text += &format!("{}: {} {state}\n", target.index, target.uuid);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::listing;
    use sheen_control::api::{Kind, MountTarget};

    #[test]
    fn targets_are_listed_as_lustre_does() {
        let json = r#"[{"kind":"MDT","index":0,"uuid":"lustre-MDT0000_UUID","device":"m","active":true},
            {"kind":"OST","index":2,"uuid":"lustre-OST0002_UUID","device":"o","active":false},
            {"kind":"MGS","device":"MGC10.77.0.11@tcp","active":true}]"#;
        let targets: Vec<MountTarget> = serde_json::from_str(json).unwrap();
        assert_eq!(listing(Kind::Ost, &targets), "OBDS:\n2: lustre-OST0002_UUID INACTIVE\n");
        assert_eq!(listing(Kind::Mdt, &targets), "MDTS:\n0: lustre-MDT0000_UUID ACTIVE\n");
    }
}
