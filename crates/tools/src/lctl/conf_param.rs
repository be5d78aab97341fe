//! `lctl conf_param`: parameters that the MGS keeps for a file system or one of its targets.

use clap::Args;
use sheen_types::Errno;

use super::params::on_the_mgs;
use crate::output::Fault;
use sheen_control::api::CONF_PARAM;

/// Options of `conf_param`.
#[derive(Args)]
pub(super) struct Conf {
    /// Delete the setting; its value stays until the next start
    #[arg(short = 'd')]
    delete: bool,
    /// A file system or target, the parameter, and its value
    #[arg(required = true, value_name = "FSNAME[-TARGET].PARAM=VALUE")]
    setting: String,
}

pub(super) fn run(options: &Conf) -> Result<(), Fault> {
    let Some(text) = assignment(&options.setting, options.delete) else {
        return Err(failed(Errno::EINVAL));
    };
    on_the_mgs(CONF_PARAM, &[&text]).map_err(failed)
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
    use super::assignment;

    #[test]
    fn a_deletion_is_a_setting_without_a_value() {
        assert_eq!(assignment("lustre.llite.x=1", false).as_deref(), Some("lustre.llite.x=1"));
        assert_eq!(assignment("lustre.llite.x=1", true).as_deref(), Some("lustre.llite.x="));
        assert_eq!(assignment("lustre.llite.x", true).as_deref(), Some("lustre.llite.x="));
        assert_eq!(assignment("lustre.llite.x", false), None);
    }
}
