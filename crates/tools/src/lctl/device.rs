//! `lctl --device`: what is done to one device: `activate`, `deactivate`, `recover`, `abort_recovery`,
//! `abort_recovery_mdt`.

use clap::Args;
use sheen_control::{Client, ControlReply, ControlRequest};
use sheen_types::Errno;

use crate::home::{self, Home};
use crate::origins;
use crate::output::Fault;
use crate::processes::{self, command};
use sheen_control::api::ABORT_RECOVERY;

/// No device has the name: the exit code of Lustre's tool.
const UNKNOWN_CODE: u8 = 1;

/// Options of commands that have none.
#[derive(Args)]
pub(super) struct Nothing {}

/// Options of `recover`.
#[derive(Args)]
pub(super) struct Recover {
    /// Device, unless it is given by --device
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
}

/// Options of `device` and `cfg_device`.
#[derive(Args)]
pub(super) struct Choose {
    /// Number or name, as `lctl dl` shows it
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
}

/// A device and the process that has it.
struct Device {
    kind: String,
    name: String,
    home: Option<Home>,
    process: Client,
}

impl Device {
    /// The one with this number in the list of `lctl dl`, or with this name, maybe behind `%` or `$`.
    ///
    /// # Errors
    /// There is none, or several file systems have one of the name.
    fn find(command_name: &str, spec: Option<&str>) -> Result<Self, Fault> {
        let failed = |why: &str| {
            let errno = Errno::EINVAL;
            Fault::new(errno, format!("error: {command_name}: {why}: {errno}"))
        };
        let spec = spec.ok_or_else(|| failed("choose a device with --device"))?;
        let name = spec.strip_prefix(['%', '$']).unwrap_or(spec);
        let wanted = name.parse::<usize>().ok();
        let mut found = Self::all(|number, own| match wanted {
            Some(wanted) => wanted == number,
            None => own == name,
        });
        let homes = origins::distinct(found.iter().map(|device| device.home.clone()));
        match (homes.len(), found.pop(), wanted) {
            (2.., ..) => Err(origins::ask(&format!("lctl {command_name}"), &homes)),
            (_, Some(device), _) => Ok(device),
            (_, None, Some(_)) => Err(failed("failed")),
            (_, None, None) => {
                let text = format!("No device found for name {name}: {}", Errno::EINVAL);
                Err(Fault { code: UNKNOWN_CODE, text })
            }
        }
    }

    /// Those of all processes that are `meant`, by number and name.
    fn all(meant: impl Fn(usize, &str) -> bool) -> Vec<Self> {
        let (mut found, mut number) = (Vec::new(), 0);
        for mut process in processes::all() {
            let Ok(text) = command(&mut process, "devices", &[]) else { continue };
            let mut own = Vec::new();
            for line in text.lines() {
                let mut words = line.split_whitespace().skip(1);
                if let (Some(kind), Some(name)) = (words.next(), words.next())
                    && meant(number, name)
                {
                    own.push((kind.to_owned(), name.to_owned()));
                }
                number += 1;
            }
            // Of one process only one device is ever meant.
            if let Some((kind, name)) = own.into_iter().next() {
                let home = home::home(&mut process);
                found.push(Self { kind, name, home, process });
            }
        }
        found
    }

    /// Sets a parameter of the device.
    fn set(&mut self, leaf: &str, value: &str) -> Result<(), Errno> {
        let pattern = format!("{}.{}.{leaf}", self.kind, self.name);
        let answer = self.process.ask(&ControlRequest::Set { pattern, value: value.to_owned() });
        match answer {
            Ok(ControlReply::Shown(shown)) if shown.is_empty() => Err(Errno::EOPNOTSUPP),
            Ok(ControlReply::Shown(shown)) => match shown.iter().find(|it| it.errno != 0) {
                Some(it) => Err(Errno(it.errno)),
                None => Ok(()),
            },
            Ok(_) => Err(Errno::EPROTO),
            Err(_) => Err(Errno::ENODEV),
        }
    }
}

/// `activate` and `deactivate`.
pub(super) fn set_active(spec: Option<&str>, is_active: bool) -> Result<(), Fault> {
    let name = if is_active { "activate" } else { "deactivate" };
    let failed = |errno| Fault::new(errno, format!("error: {name}: failed: {errno}"));
    Device::find(name, spec)?.set("active", if is_active { "1" } else { "0" }).map_err(failed)
}

/// Connects anew at once.
pub(super) fn recover(spec: Option<&str>, options: &Recover) -> Result<(), Fault> {
    let failed = |errno| Fault::new(errno, format!("error: recover: {errno}"));
    Device::find("recover", options.device.as_deref().or(spec))?
        .set("import", "recover")
        .map_err(failed)
}

/// Ends the recovery of a target: clients that have not finished are evicted.
pub(super) fn abort_recovery(spec: Option<&str>) -> Result<(), Fault> {
    abort("abort_recovery", spec, None)
}

/// Ends the recovery of a target for MDTs that are its clients. With one MDT an MDT has none, and its recovery goes on.
pub(super) fn abort_recovery_mdt(spec: Option<&str>) -> Result<(), Fault> {
    abort("abort_recovery_mdt", spec, Some("mdt"))
}

fn abort(name: &str, spec: Option<&str>, whose: Option<&str>) -> Result<(), Fault> {
    let mut device = Device::find(name, spec)?;
    let failed = |errno| Fault::new(errno, format!("error: {name}: {errno}"));
    if !["mdt", "obdfilter", "mgs"].contains(&device.kind.as_str()) {
        return Err(failed(Errno::EOPNOTSUPP));
    }
    let words: Vec<&str> = std::iter::once(device.name.as_str()).chain(whose).collect();
    let done = command(&mut device.process, ABORT_RECOVERY, &words);
    done.map(drop).map_err(|(errno, _)| failed(errno))
}

/// A device is chosen for one command, with `--device`: alone this looks only whether there is one.
pub(super) fn choose(options: &Choose) -> Result<(), Fault> {
    match &options.device {
        Some(spec) => Device::find("device", Some(spec)).map(drop),
        None => {
            crate::output::line("current device is -1 - not set");
            Ok(())
        }
    }
}
