//! `lfs fid2path`: the paths of FIDs.

use std::path::Path;

use clap::Args;
use sheen_types::{Errno, Fid};

use super::mount::Mount;
use crate::output::{Fault, text_out, worst as outcome};
use sheen_control::api::FID_TO_PATH;

/// Options of `fid2path`.
#[derive(Args)]
pub(super) struct FidToPath {
    /// Terminate each path by NUL instead of a newline
    #[arg(short = '0', long)]
    print0: bool,
    /// Print the FID before the path
    #[arg(short = 'f', long)]
    print_fid: bool,
    /// Print the link number before the path
    #[arg(short = 'c', long)]
    print_link: bool,
    /// Print only the link with this number
    #[arg(short, long, value_name = "LINKNO")]
    link: Option<u32>,
    /// Print only the last component of the path
    #[arg(short, long)]
    name: bool,
    /// Name of the file system, or a path on it
    #[arg(value_name = "FSNAME|ROOT")]
    root: String,
    /// FIDs
    #[arg(required = true, value_name = "FID")]
    fids: Vec<String>,
}

/// One line of the process's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    number: u32,
    /// Relative to the mount; empty for its root.
    pub(super) path: &'a str,
}

impl<'a> Link<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (number, path) = line.split_once(' ')?;
        Some(Self { number: number.parse().ok()?, path: path.trim_start_matches('/') })
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &'a str {
        self.path.rsplit_once('/').map_or(self.path, |(_, name)| name)
    }
}

pub(super) fn run(options: &FidToPath) -> Result<(), Fault> {
    let by_path = options.root.starts_with('/');
    let mount = match by_path {
        true => Mount::of(Path::new(&options.root)),
        false => Mount::named("lfs fid2path", &options.root)?.ok_or(Errno::ENODEV),
    };
    let mut mount = mount.map_err(|errno| {
        let text = format!("lfs fid2path: cannot resolve mount point for '{}'", options.root);
        Fault::new(errno, format!("{text}: {errno}"))
    })?;
    let prefix =
        if by_path { format!("{}/", mount.info.path.trim_end_matches('/')) } else { String::new() };
    let mut worst = None;
    for text in &options.fids {
        let Ok(fid) = text.parse::<Fid>() else {
            eprintln!("lfs fid2path: invalid FID '{text}'");
            worst = Some(Errno::EINVAL);
            continue;
        };
        match paths(options, &mut mount, fid, &prefix) {
            Ok(paths) => text_out(&paths),
            Err(errno) => {
                eprintln!("lfs fid2path: cannot find {} {text}: {errno}", options.root);
                worst = Some(errno);
            }
        }
    }
    outcome(worst)
}

fn paths(options: &FidToPath, mount: &mut Mount, fid: Fid, prefix: &str) -> Result<String, Errno> {
    let mut arguments = vec![fid.to_string()];
    arguments.extend(options.link.map(|number| number.to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = mount.command(FID_TO_PATH, &arguments).map_err(|(errno, _)| errno)?;
    Ok(answer
        .lines()
        .filter_map(Link::parse)
        .map(|link| shown(options, fid, &link, prefix))
        .collect())
}

/// The root is "/" behind the prefix, which gives "/mnt/l//" as in Lustre.
fn shown(options: &FidToPath, fid: Fid, link: &Link<'_>, prefix: &str) -> String {
    let mut text = String::new();
    if options.print_fid {
        text += &format!("{fid} ");
    }
    if options.print_link {
        text += &format!("{} ", link.number);
    }
    match (options.name, link.path) {
        (true, _) => text += link.name(),
        (false, "") => text += &format!("{prefix}/"),
        (false, path) => text += &format!("{prefix}{path}"),
    }
    text.push(if options.print0 { '\0' } else { '\n' });
    text
}

#[cfg(test)]
mod tests {
    use sheen_types::Fid;

    use super::{FidToPath, Link, shown};

    #[test]
    fn paths_are_shown_as_lustre_shows_them() {
        let mut options = FidToPath {
            print0: false,
            print_fid: false,
            print_link: false,
            link: None,
            name: false,
            root: "lustre".to_owned(),
            fids: Vec::new(),
        };
        let link = Link::parse("0 cfg/f").unwrap();
        let fid = Fid::new(0x2_4000_0404, 3);
        assert_eq!(shown(&options, fid, &link, "/mnt/l/"), "/mnt/l/cfg/f\n");
        assert_eq!(shown(&options, fid, &link, ""), "cfg/f\n");
        let root = Link::parse("0 /").unwrap();
        assert_eq!(shown(&options, fid, &root, "/mnt/l/"), "/mnt/l//\n");
        assert_eq!(shown(&options, fid, &root, ""), "/\n");
        options.print_link = true;
        assert_eq!(shown(&options, fid, &link, "/mnt/l/"), "0 /mnt/l/cfg/f\n");
        (options.print_fid, options.print0) = (true, true);
        assert_eq!(shown(&options, fid, &link, ""), "[0x240000404:0x3:0x0] 0 cfg/f\0");
        options.name = true;
        assert_eq!(shown(&options, fid, &link, ""), "[0x240000404:0x3:0x0] 0 f\0");
    }
}
