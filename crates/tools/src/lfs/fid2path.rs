//! `lfs fid2path`: the paths of FIDs.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use clap::Args;
use sheen_types::text::bytes_of_shown;
use sheen_types::{Errno, Fid};

use super::mount::Mount;
use crate::output::{Fault, shown, worst as outcome, write_out};
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
pub(super) struct Link {
    number: u32,
    /// Relative to the mount; empty for its root.
    path: Vec<u8>,
}

impl Link {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (number, path) = line.split_once(' ')?;
        let path = bytes_of_shown(path.as_bytes());
        // Whatever an answer says, it leads to nothing outside of the mount.
        let from = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        Some(Self { number: number.parse().ok()?, path: path[from..].to_vec() })
    }

    /// Relative to the mount; empty for its root.
    pub(super) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

pub(super) fn run(options: &FidToPath) -> Result<(), Fault> {
    let by_path = options.root.starts_with('/');
    let mount = match by_path {
        true => Mount::of(Path::new(&options.root)),
        false => Mount::named("lfs fid2path", &options.root)?.ok_or(Errno::ENODEV),
    };
    let mut mount = mount.map_err(|errno| {
        let text =
            format!("lfs fid2path: cannot resolve mount point for '{}'", shown(&options.root));
        Fault::new(errno, format!("{text}: {errno}"))
    })?;
    let mut prefix = Vec::new();
    if by_path {
        prefix = mount.info.point().into_os_string().into_vec();
        // "/" is the root's.
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
    }
    let mut worst = None;
    for text in &options.fids {
        let Ok(fid) = text.parse::<Fid>() else {
            eprintln!("lfs fid2path: invalid FID '{}'", shown(text));
            worst = Some(Errno::EINVAL);
            continue;
        };
        match paths(options, &mut mount, fid, &prefix) {
            Ok(paths) => write_out(&paths),
            Err(errno) => {
                eprintln!("lfs fid2path: cannot find {} {text}: {errno}", shown(&options.root));
                worst = Some(errno);
            }
        }
    }
    outcome(worst)
}

fn paths(
    options: &FidToPath,
    mount: &mut Mount,
    fid: Fid,
    prefix: &[u8],
) -> Result<Vec<u8>, Errno> {
    let mut arguments = vec![fid.to_string()];
    arguments.extend(options.link.map(|number| number.to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = mount.command(FID_TO_PATH, &arguments).map_err(|(errno, _)| errno)?;
    Ok(answer
        .lines()
        .filter_map(Link::parse)
        .flat_map(|link| link_out(options, fid, &link, prefix))
        .collect())
}

/// The root is "/" behind the prefix, which gives "/mnt/l//" as in Lustre. All bytes of names are as they are.
fn link_out(options: &FidToPath, fid: Fid, link: &Link, prefix: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if options.print_fid {
        out.extend(format!("{fid} ").bytes());
    }
    if options.print_link {
        out.extend(format!("{} ", link.number).bytes());
    }
    match (options.name, &*link.path) {
        (true, _) => out.extend(link.name()),
        (false, b"") => out.extend([prefix, b"/"].concat()),
        (false, path) => out.extend([prefix, path].concat()),
    }
    out.push(if options.print0 { b'\0' } else { b'\n' });
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use sheen_types::Fid;

    use super::{FidToPath, Link, link_out};

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
        assert_eq!(link_out(&options, fid, &link, b"/mnt/l/"), b"/mnt/l/cfg/f\n");
        assert_eq!(link_out(&options, fid, &link, b""), b"cfg/f\n");
        let root = Link::parse("0 /").unwrap();
        assert_eq!(link_out(&options, fid, &root, b"/mnt/l/"), b"/mnt/l//\n");
        assert_eq!(link_out(&options, fid, &root, b""), b"/\n");
        options.print_link = true;
        assert_eq!(link_out(&options, fid, &link, b"/mnt/l/"), b"0 /mnt/l/cfg/f\n");
        (options.print_fid, options.print0) = (true, true);
        assert_eq!(link_out(&options, fid, &link, b""), b"[0x240000404:0x3:0x0] 0 cfg/f\0");
        let odd = Link::parse("1 a\\012b/c\\351\\134").unwrap();
        assert_eq!(odd.path().as_os_str().as_bytes(), b"a\nb/c\xe9\\");
        assert_eq!(
            link_out(&options, fid, &odd, b"/mnt/l/"),
            b"[0x240000404:0x3:0x0] 1 /mnt/l/a\nb/c\xe9\\\0"
        );
        let outside = Link::parse("0 \\057etc").unwrap();
        assert_eq!(outside.path(), Path::new("etc"), "below the mount");
        options.name = true;
        assert_eq!(link_out(&options, fid, &odd, b""), b"[0x240000404:0x3:0x0] 1 c\xe9\\\0");
        assert_eq!(link_out(&options, fid, &link, b""), b"[0x240000404:0x3:0x0] 0 f\0");
    }
}
