//! A file system to be compared: `NAME=DIRECTORY` or `NAME=native:MGSNID:/FSNAME[/DIRECTORY]`.

use serde::Serialize;
use sheen_types::Errno;

use crate::backend::{Backend, remove_all};
use crate::posix::Posix;
use crate::text::failed;
use crate::{Api, Native, Surroundings};

/// One of the file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ComparedFs {
    pub(super) name: String,
    pub(super) api: Api,
    /// The directory to work in, without a slash at its end; natively from the file system's root.
    pub(super) directory: String,
    pub(super) native: Native,
}

/// A target as reports show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ComparedFsReport {
    /// What the user calls it.
    pub name: String,
    /// The way to it.
    pub api: Api,
    /// Directory, or source of the native client and directory.
    pub place: String,
}

impl ComparedFs {
    pub(super) fn parse(text: &str, port: Option<u16>, clients: u16) -> Result<Self, String> {
        let wrong = |what: &str| format!("--target {text}: {what}");
        let (name, place) = text.split_once('=').ok_or_else(|| wrong("not NAME=PLACE"))?;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(wrong("no name"));
        }
        let mut target = Self {
            name: name.to_owned(),
            api: Api::Posix,
            directory: place.trim_end_matches('/').to_owned(),
            native: Native { source: None, port, clients },
        };
        let Some(place) = place.strip_prefix("native:") else {
            // What mdtest and IOR take for several places, and what would not be one word of io500's lines.
            let odd = place.is_empty() || place.contains(['@', ' ']);
            return if odd {
                Err(wrong("not a directory that can be worked in"))
            } else {
                Ok(target)
            };
        };
        let at = place.find(":/").ok_or_else(|| wrong("not native:MGSNID:/FSNAME"))?;
        let behind = place[at + 2..].trim_end_matches('/');
        let (name, directory) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        if at == 0 || name.is_empty() || place.contains(' ') {
            return Err(wrong("not native:MGSNID:/FSNAME"));
        }
        target.api = Api::Native;
        target.native.source = Some(format!("{}:/{name}", &place[..at]));
        directory.clone_into(&mut target.directory);
        Ok(target)
    }

    pub(super) fn backend(&self, surroundings: &Surroundings) -> Result<Box<dyn Backend>, String> {
        match self.api {
            Api::Posix => Ok(Box::new(Posix::default())),
            Api::Native => (surroundings.native)(&self.native, 1),
        }
    }

    /// Whether one can work there.
    pub(super) fn check(&self, surroundings: &Surroundings) -> Result<(), String> {
        let wrong = |line: String| format!("target '{}': {line}", self.name);
        let backend = self.backend(surroundings).map_err(wrong)?;
        let mut worker = backend.worker(0, 1).map_err(wrong)?;
        let top = if self.directory.is_empty() { "/" } else { &self.directory };
        match worker.stat(top) {
            Ok(stat) if stat.is_directory => {}
            Ok(_) => return Err(wrong(failed("work in", top, Errno::ENOTDIR))),
            Err(errno) => return Err(wrong(failed("work in", top, errno))),
        }
        let probe = self.work_directory();
        let made = worker.mkdir(&probe).and_then(|()| remove_all(&mut *worker, &probe));
        made.map_err(|errno| wrong(failed("work in", top, errno)))
    }

    /// The directory of a run, which is not there before it.
    pub(super) fn work_directory(&self) -> String {
        format!("{}/sheen-compare-{}", self.directory, std::process::id())
    }

    /// Words for a benchmark: the way there.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec!["-a".to_owned()];
        if self.api == Api::Posix {
            words.push("POSIX".to_owned());
            return words;
        }
        let Native { source, port, clients } = &self.native;
        words.push("NATIVE".to_owned());
        words.push(format!("--native.clients={clients}"));
        words.extend(source.iter().map(|source| format!("--native.source={source}")));
        words.extend(port.iter().map(|port| format!("--native.port={port}")));
        words
    }

    pub(super) fn report(&self) -> ComparedFsReport {
        let place = match &self.native.source {
            None => self.directory.clone(),
            Some(source) => format!("{source}{}", self.directory),
        };
        ComparedFsReport { name: self.name.clone(), api: self.api, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_directories_or_native_sources() {
        let target = |text: &str| ComparedFs::parse(text, Some(7), 2).unwrap();
        let mount = target("sheen=/mnt/a/");
        assert_eq!((mount.name.as_str(), mount.directory.as_str()), ("sheen", "/mnt/a"));
        assert_eq!(mount.words(), ["-a", "POSIX"]);
        let native = target("n=native:10.0.0.1@tcp:10.0.0.2@tcp:/fs/x/y/");
        assert_eq!(native.native.source.as_deref(), Some("10.0.0.1@tcp:10.0.0.2@tcp:/fs"));
        assert_eq!(native.directory, "/x/y");
        assert_eq!(
            native.words()[2..4],
            ["--native.clients=2", "--native.source=10.0.0.1@tcp:10.0.0.2@tcp:/fs"]
        );
        assert_eq!(target("n=native:a@tcp:/fs").directory, "");
        assert_eq!(target("n=native:a@tcp:/fs/x").report().place, "a@tcp:/fs/x");
        for text in [
            "/mnt",
            "=/mnt",
            "a=",
            "a=/x@/y",
            "a=/x y",
            "a=native:",
            "a=native:x",
            "a=native::/fs",
            "a=native:x:/",
        ] {
            let line = ComparedFs::parse(text, None, 1).expect_err(text);
            assert!(line.starts_with("--target ") && !line.contains('\n'), "{line}");
        }
    }
}
