//! `lctl llog_catlist` and `llog_print`: the configuration logs of the MGS.

use clap::Args;
use sheen_types::Errno;

use crate::origins;
use crate::output::{Fault, line};
use crate::processes::command_first;
use sheen_control::api::{LLOG_CATLIST, LLOG_PRINT, LogLine};

/// No device of the name, as Lustre's tool leaves.
const UNKNOWN_CODE: u8 = 1;

/// Options of `llog_catlist`.
#[derive(Args)]
pub(super) struct CatList {}

/// Options of `llog_print`.
#[derive(Args)]
pub(super) struct Print {
    /// Name of the log
    #[arg(value_name = "LOGNAME")]
    name: Option<String>,
    /// Name of the log
    #[arg(short, long, value_name = "LOGNAME", conflicts_with = "name")]
    catalog: Option<String>,
    /// Print records from this index on
    #[arg(short, long, value_name = "INDEX", default_value_t = 1)]
    start: u32,
    /// Print records up to and including this index
    #[arg(short, long, value_name = "INDEX", default_value_t = u32::MAX)]
    end: u32,
    /// Also print markers and cancelled records
    #[arg(short, long)]
    raw: bool,
}

/// Only the MGS has logs with names.
fn is_mgs(device: Option<&str>) -> Result<(), Fault> {
    match device {
        None | Some("MGS" | "$MGS" | "%MGS") => Ok(()),
        Some(other) => {
            let text = format!("lctl: device '{other}' has no logs: choose MGS");
            Err(Fault::new(Errno::EOPNOTSUPP, text))
        }
    }
}

fn no_mgs() -> Fault {
    let text = format!("No device found for name MGS: {}", Errno::EINVAL);
    Fault { code: UNKNOWN_CODE, text }
}

/// The logs of file systems; those without a file system in their names are not listed, as in Lustre.
pub(super) fn list(device: Option<&str>) -> Result<(), Fault> {
    is_mgs(device)?;
    origins::choose_mgs("lctl llog_catlist", |_| false)?;
    let text = command_first(LLOG_CATLIST, &[]).map_err(|_| no_mgs())?;
    let names = text.lines().filter(|name| name.contains('-'));
    names.for_each(|name| line(format_args!("config_log: {name}")));
    Ok(())
}

pub(super) fn print(device: Option<&str>, options: &Print) -> Result<(), Fault> {
    let Some(name) = options.name.as_ref().or(options.catalog.as_ref()) else {
        return Err(Fault::usage("llog_print: no logname specified"));
    };
    is_mgs(device)?;
    if options.start > options.end {
        let (start, end) = (options.start, options.end);
        return Err(Fault::usage(format!("llog_print: start index {start} is above end {end}")));
    }
    origins::choose_mgs("lctl llog_print", |fsname| {
        name.strip_prefix(fsname).is_some_and(|rest| rest.starts_with('-'))
    })?;
    let words = [name.as_str(), if options.raw { "raw" } else { "" }];
    let answer = command_first(LLOG_PRINT, &words).map_err(|(errno, _)| match errno {
        Errno::ENODEV => no_mgs(),
        errno => Fault::new(errno, format!("llog_print: {name}: {errno}")),
    })?;
    let lines: Vec<LogLine> = serde_json::from_str(&answer)
        .map_err(|error| Fault::new(Errno::EPROTO, format!("llog_print: {error}")))?;
    let shown = lines.iter().filter(|it| (options.start..=options.end).contains(&it.index));
    shown.for_each(|it| line(&it.text));
    Ok(())
}
