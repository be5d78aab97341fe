//! Surveys from the side of the tool: the servers of this machine, asked over their control sockets.

use sheen_bench::device::{Ask, Device, Devices, Kind, Progress, SurveyReply, Work};
use sheen_control::Client;
use sheen_types::Errno;

use sheen_control::api;
use sheen_tools::processes;

/// The server processes of this machine.
pub(super) struct Servers;

/// A survey of one target, in the process that has it.
struct Survey {
    process: Client,
    session: u64,
}

impl Devices for Servers {
    fn targets(&self, kind: Kind) -> Result<Vec<String>, String> {
        let wanted = if kind == Kind::Mdt { "mdt" } else { "obdfilter" };
        let mut names = Vec::new();
        for mut process in processes::all() {
            // Mounts have devices too, of other kinds.
            let Ok(text) = processes::command(&mut process, "devices", &[]) else { continue };
            for line in text.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                if let ["UP", kind, name, ..] = words[..]
                    && kind == wanted
                {
                    names.push(name.to_owned());
                }
            }
        }
        names.sort();
        Ok(names)
    }

    fn attach(&self, target: &str) -> Result<Box<dyn Device>, String> {
        for mut process in processes::all() {
            let ask = Ask::Attach { target: target.to_owned() };
            match put(&mut process, &ask) {
                Ok(SurveyReply::Attached { session }) => {
                    return Ok(Box::new(Survey { process, session }));
                }
                Ok(other) => return Err(format!("unexpected answer {other:?}")),
                // No server, or not the one that has the target.
                Err((Errno::EOPNOTSUPP | Errno::ENODEV, _)) => {}
                Err((_, line)) => return Err(line),
            }
        }
        Err(format!("target {target} is not running on this machine"))
    }
}

fn put(process: &mut Client, ask: &Ask) -> Result<SurveyReply, processes::Failure> {
    let wrong = |error: serde_json::Error| (Errno::EPROTO, error.to_string());
    let text = serde_json::to_string(ask).map_err(wrong)?;
    let answer = processes::command(process, api::ECHO, &[&text])?;
    serde_json::from_str(&answer).map_err(wrong)
}

impl Survey {
    fn put(&mut self, ask: &Ask) -> Result<SurveyReply, String> {
        put(&mut self.process, ask).map_err(|(_, line)| line)
    }

    fn done(&mut self, ask: &Ask) -> Result<(), String> {
        match self.put(ask)? {
            SurveyReply::Done => Ok(()),
            other => Err(format!("unexpected answer {other:?}")),
        }
    }
}

impl Device for Survey {
    fn prepare(&mut self, count: u32) -> Result<(), String> {
        self.done(&Ask::Prepare { session: self.session, count })
    }

    fn start(&mut self, work: &Work) -> Result<(), String> {
        self.done(&Ask::Start { session: self.session, work: work.clone() })
    }

    fn watch(&mut self) -> Result<Progress, String> {
        match self.put(&Ask::Watch { session: self.session })? {
            SurveyReply::Progress(progress) => Ok(progress),
            other => Err(format!("unexpected answer {other:?}")),
        }
    }

    fn clean(&mut self) -> Result<(), String> {
        self.done(&Ask::Clean { session: self.session })
    }

    fn detach(&mut self) -> Result<(), String> {
        self.done(&Ask::Detach { session: self.session })
    }
}
