//! `lctl conf_param`: parameters that the MGS keeps for a file system or one of its targets.

use clap::Args;
use sheen_types::{Errno, TargetName};

use super::params::on_the_mgs;
use crate::origins;
use crate::output::Fault;
use sheen_control::api::CONF_PARAM;

/// Options of `conf_param`.
#[derive(Args)]
pub(super) struct Conf {
    /// Delete the setting; its value stays until the next start
    #[arg(short = 'd')]
    delete: bool,
    /// File system or target, parameter and value
    #[arg(required = true, value_name = "FSNAME[-TARGET].PARAM=VALUE")]
    setting: String,
}

pub(super) fn run(options: &Conf) -> Result<(), Fault> {
    let Some(text) = assignment(&options.setting, options.delete) else {
        return Err(failed(Errno::EINVAL));
    };
    origins::choose_mgs("lctl conf_param", |name| name == fsname(&text))?;
    on_the_mgs(CONF_PARAM, &[&text]).map_err(failed)
}

/// The file system in `FSNAME[-TARGET].PARAM=VALUE`.
fn fsname(text: &str) -> String {
    let device = text.split(['.', '=']).next().unwrap_or_default();
    device.parse().map_or_else(|_| device.to_owned(), |target: TargetName| target.fsname)
}

fn failed(errno: Errno) -> Fault {
    Fault::new(errno, format!("error: conf_param: {errno}"))
}

/// What is sent to the MGS: `name=value`, `name=` to delete; nothing for a setting without a value.
pub(super) fn assignment(setting: &str, delete: bool) -> Option<String> {
    match setting.split_once('=') {
        Some((name, _)) if delete => Some(format!("{name}=")),
        None if delete => Some(format!("{setting}=")),
        Some(_) => Some(setting.to_owned()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{assignment, fsname};

    #[test]
    fn the_file_system_comes_first() {
        for text in ["a-b-OST0000.osc.active=0", "a-b.llite.x=a.b-c", "a-b="] {
            assert_eq!(fsname(text), "a-b");
        }
    }

    #[test]
    fn a_deletion_is_a_setting_without_a_value() {
        assert_eq!(assignment("lustre.llite.x=1", false).as_deref(), Some("lustre.llite.x=1"));
        assert_eq!(assignment("lustre.llite.x=1", true).as_deref(), Some("lustre.llite.x="));
        assert_eq!(assignment("lustre.llite.x", true).as_deref(), Some("lustre.llite.x="));
        assert_eq!(assignment("lustre.llite.x", false), None);
    }
}
