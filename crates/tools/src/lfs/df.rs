//! `lfs df`: how full MDTs and OSTs are.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use sheen_types::Errno;

use super::mount::Mount;
use super::pools;
use super::size::human;
use crate::output::{Fault, line, shown_path, text_out};
use sheen_control::api::{Kind, TARGET_STATFS, TargetStatfs};

/// Options of Lustre's `df` that are not here yet.
pub(super) const REFUSED: &[&str] = &["-u", "--output"];

/// Letters for the bits of `os_state`, and whether they mean trouble (`obd_statfs_state_names`):
/// those are always shown.
const STATES: [(u32, char, bool); 7] = [
    (0x001, 'D', true),
    (0x002, 'R', true),
    (0x004, 'N', true),
    (0x020, 'S', true),
    (0x040, 'I', true),
    (0x100, 'a', false),
    (0x200, 'f', false),
];

/// Options of `df`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(super) struct Df {
    /// Print sizes in powers of 1024
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print sizes in powers of 1000
    #[arg(short = 'H', long)]
    si: bool,
    /// Print inode usage instead of block usage
    #[arg(short, long)]
    inodes: bool,
    /// Do not wait for targets that are not connected
    #[arg(short, long)]
    lazy: bool,
    /// Only MDTs, or only the MDT with this index
    #[arg(short, long, value_name = "INDEX", num_args = 0..=1, require_equals = true)]
    mdt: Option<Option<u16>>,
    /// Only OSTs, or only the OST with this index
    #[arg(short, long, value_name = "INDEX", num_args = 0..=1, require_equals = true)]
    ost: Option<Option<u16>>,
    /// Print no header
    #[arg(short = 'N', long)]
    no_header: bool,
    /// Print the summary only
    #[arg(short = 's', long)]
    only_summary: bool,
    /// Also print deactivated targets and all states
    #[arg(short, long)]
    verbose: bool,
    /// Only the OSTs of this pool
    #[arg(short, long, value_name = "[FSNAME.]POOL")]
    pool: Option<String>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// A path on a file system [default: all mounted file systems]
    path: Option<PathBuf>,
}

impl Df {
    /// Without `-m` and `-o` both kinds are wanted.
    fn wants(&self, target: &TargetStatfs) -> bool {
        let chosen = match target.kind {
            Kind::Mgs => return false,
            Kind::Mdt => self.mdt,
            Kind::Ost => self.ost,
        };
        match chosen {
            None => self.mdt.is_none() && self.ost.is_none(),
            Some(index) => index.is_none_or(|index| index == target.index),
        }
    }

    fn cell(&self, value: u64) -> String {
        match (self.human_readable, self.si) {
            (true, _) => human(value, 1024),
            (false, true) => human(value, 1000),
            (false, false) if self.inodes => format!("{value:>11}"),
            (false, false) => format!("{:>11}", value >> 10),
        }
    }

    fn header(&self) -> String {
        let [total, used, free, ratio] = match (self.inodes, self.human_readable || self.si) {
            (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
            (false, true) => ["bytes", "Used", "Available", "Use%"],
            (false, false) => ["1K-blocks", "Used", "Available", "Use%"],
        };
        format!("{:<20} {total:>11} {used:>11} {free:>11} {ratio:>4}  Mounted on\n", "UUID")
    }
}

/// What a line says: bytes, or inodes.
#[derive(Clone, Copy, Default)]
struct Usage {
    total: u64,
    used: u64,
    free: u64,
}

impl Usage {
    fn blocks(target: &TargetStatfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(target.bsize);
        let used = target.blocks.saturating_sub(target.bfree);
        Self { total: bytes(target.blocks), used: bytes(used), free: bytes(target.bavail) }
    }

    fn inodes(target: &TargetStatfs) -> Self {
        let used = target.files.saturating_sub(target.ffree);
        Self { total: target.files, used, free: target.ffree }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            used: self.used.saturating_add(other.used),
            free: self.free.saturating_add(other.free),
        }
    }

    /// Of what there is to use, rounded up.
    fn percent(self) -> u128 {
        let of = u128::from(self.used) + u128::from(self.free);
        if of == 0 { 0 } else { (u128::from(self.used) * 100).div_ceil(of) }
    }
}

pub(super) fn run(options: &Df) -> Result<(), Fault> {
    let mounts = Mount::chosen(options.path.as_deref())
        .map_err(|errno| no_mount(options.path.as_deref().unwrap_or(Path::new("")), errno))?;
    if mounts.is_empty() {
        let text = format!("lfs df: cannot find mounted Lustre filesystem: {}", Errno::ENODEV);
        return Err(Fault::new(Errno::ENODEV, text));
    }
    let arguments: &[&str] = if options.lazy { &["lazy"] } else { &[] };
    mounts.each("df", |mount| {
        let mut targets: Vec<TargetStatfs> = mount.ask(TARGET_STATFS, arguments)?;
        if let Some(pool) = &options.pool {
            only_pool(&mut targets, &pools::of(mount)?, pool);
        }
        text_out(&table(options, &mount.info.path, &targets));
        Ok(())
    })
}

/// Leaves out the OSTs that are not in the pool; a pool that is not there has none.
fn only_pool(targets: &mut Vec<TargetStatfs>, pools: &pools::Pools, pool: &str) {
    let name = pool.split_once('.').map_or(pool, |(_, name)| name);
    let members = pools.get(name).map_or(&[][..], Vec::as_slice);
    targets.retain(|target| target.kind != Kind::Ost || members.contains(&target.uuid));
}

/// For another file system Lustre has a line on stdout and an exit code of its own.
fn no_mount(path: &Path, errno: Errno) -> Fault {
    if errno == Errno::ENODEV {
        line(format_args!("df:{} Not a Lustre filesystem", shown_path(path)));
        return Fault::reported(Errno::EOPNOTSUPP);
    }
    Fault::new(errno, format!("error: invalid path '{}': {errno}", shown_path(path)))
}

fn table(options: &Df, path: &str, targets: &[TargetStatfs]) -> String {
    let mut text = if options.no_header { String::new() } else { options.header() };
    let (mut mdts, mut osts) = (Usage::default(), Usage::default());
    let (mut mdt_count, mut ost_count) = (0, 0);
    for target in targets.iter().filter(|target| options.wants(target)) {
        if target.errno != 0 {
            text += &unusable(options, target);
            continue;
        }
        let usage = if options.inodes { Usage::inodes(target) } else { Usage::blocks(target) };
        let (kind, sum, count) = match target.kind {
            Kind::Ost => ("OST", &mut osts, &mut ost_count),
            Kind::Mdt | Kind::Mgs => ("MDT", &mut mdts, &mut mdt_count),
        };
        *sum = sum.plus(usage);
        *count += 1;
        if !options.only_summary {
            let states = states(options, target.state);
            let place = format!("{path}[{kind}:{}] {states}", target.index);
            text += &row(options, &target.uuid, usage, &place);
        }
    }
    let summary = summary(options, (mdts, mdt_count), (osts, ost_count));
    if !options.only_summary {
        text.push('\n');
    }
    text += &row(options, "filesystem_summary:", summary, &format!("{path} "));
    text.push('\n');
    text
}

/// Space is the OSTs'. Inodes are the MDTs', as far as the OSTs have objects for them.
fn summary(options: &Df, mdts: (Usage, usize), osts: (Usage, usize)) -> Usage {
    let ((mdts, mdt_count), (osts, ost_count)) = (mdts, osts);
    match (options.inodes, mdt_count, ost_count) {
        (false, _, 0) if options.mdt.is_some() => mdts,
        (false, _, _) => osts,
        (true, 0, _) => osts,
        (true, _, 0) => mdts,
        (true, _, _) if osts.free < mdts.free => {
            Usage { total: mdts.used.saturating_add(osts.free), used: mdts.used, free: osts.free }
        }
        (true, _, _) => mdts,
    }
}

fn row(options: &Df, name: &str, usage: Usage, place: &str) -> String {
    let [total, used, free] =
        [usage.total, usage.used, usage.free].map(|value| options.cell(value));
    format!("{name:<20} {total} {used} {free} {:>3}%  {place}\n", usage.percent())
}

/// A deactivated target is worth a line only with `-v`; one that does not answer always is.
fn unusable(options: &Df, target: &TargetStatfs) -> String {
    match Errno(target.errno) {
        Errno::ENODATA if options.verbose => format!("{:<20}: inactive device\n", target.uuid),
        Errno::ENODATA => String::new(),
        errno => format!("{:<20}: {errno}\n", target.uuid),
    }
}

fn states(options: &Df, state: u32) -> String {
    let shown =
        STATES.iter().filter(|(bit, _, trouble)| state & bit != 0 && (*trouble || options.verbose));
    shown.map(|(_, letter, _)| letter).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use sheen_types::Errno;

    use super::{Df, table};
    use sheen_control::api::{Kind, TargetStatfs};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        df: Df,
    }

    fn shown(words: &[&str]) -> String {
        let line = Line::try_parse_from([&["df"], words].concat()).unwrap();
        table(&line.df, "/mnt/l", &targets())
    }

    /// The numbers of `lfs df` and `lfs df -i` of a real Lustre: kind, index, total, used and free
    /// KiB, total and used inodes.
    fn targets() -> Vec<TargetStatfs> {
        let target = |kind, index, blocks, used, bavail, files, iused| TargetStatfs {
            kind,
            index,
            uuid: match kind {
                Kind::Ost => format!("lustre-OST{index:04x}_UUID"),
                _ => format!("lustre-MDT{index:04x}_UUID"),
            },
            blocks,
            bfree: blocks - used,
            bavail,
            bsize: 1024,
            files,
            ffree: files - iused,
            state: 0x200,
            errno: 0,
        };
        vec![
            target(Kind::Mdt, 0, 159_376, 3264, 136_160, 122_880, 1418),
            target(Kind::Mdt, 1, 159_376, 3012, 136_412, 122_880, 1643),
            target(Kind::Ost, 0, 321_504, 21_068, 272_620, 102_400, 1163),
            target(Kind::Ost, 1, 321_504, 5820, 287_868, 102_400, 1100),
            target(Kind::Ost, 2, 321_504, 8996, 284_692, 102_400, 1202),
            target(Kind::Ost, 3, 321_504, 6588, 287_100, 102_400, 1169),
        ]
    }

    #[test]
    fn blocks_are_lustres_table() {
        let expected = "\
UUID                   1K-blocks        Used   Available Use%  Mounted on
lustre-MDT0000_UUID       159376        3264      136160   3%  /mnt/l[MDT:0] 
lustre-MDT0001_UUID       159376        3012      136412   3%  /mnt/l[MDT:1] 
lustre-OST0000_UUID       321504       21068      272620   8%  /mnt/l[OST:0] 
lustre-OST0001_UUID       321504        5820      287868   2%  /mnt/l[OST:1] 
lustre-OST0002_UUID       321504        8996      284692   4%  /mnt/l[OST:2] 
lustre-OST0003_UUID       321504        6588      287100   3%  /mnt/l[OST:3] 

filesystem_summary:      1286016       42472     1132280   4%  /mnt/l 

";
        assert_eq!(shown(&[]), expected);
    }

    #[test]
    fn people_get_units() {
        let text = shown(&["-h"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "UUID                       bytes        Used   Available Use%  Mounted on"
        );
        assert_eq!(
            lines[1],
            "lustre-MDT0000_UUID     155.6M      3.2M    133.0M   3%  /mnt/l[MDT:0] "
        );
        assert_eq!(lines[8], "filesystem_summary:       1.2G     41.5M      1.1G   4%  /mnt/l ");
        let text = shown(&["-H"]);
        assert!(
            text.contains(
                "lustre-OST0000_UUID     329.2M     21.6M    279.2M   8%  /mnt/l[OST:0] \n"
            )
        );
    }

    #[test]
    fn inodes_are_lustres_table() {
        let text = shown(&["-i"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "UUID                      Inodes       IUsed       IFree IUse%  Mounted on"
        );
        assert_eq!(
            lines[1],
            "lustre-MDT0000_UUID       122880        1418      121462   2%  /mnt/l[MDT:0] "
        );
        assert_eq!(
            lines[8],
            "filesystem_summary:       245760        3061      242699   2%  /mnt/l "
        );
        assert!(
            shown(&["-hi"])
                .contains("filesystem_summary:     240.0K      3.0K    237.0K   2%  /mnt/l \n")
        );
    }

    #[test]
    fn kinds_and_states_are_chosen() {
        let text = shown(&["-m"]);
        assert!(!text.contains("OST"));
        assert!(
            text.contains(
                "filesystem_summary:       318752        6276      272572   3%  /mnt/l \n"
            )
        );
        assert_eq!(shown(&["-o=2"]).matches("[OST:").count(), 1);
        assert!(shown(&["-v"]).contains("/mnt/l[OST:3] f\n"));
        assert_eq!(shown(&["-Ns"]).lines().count(), 2);
    }

    #[test]
    fn an_absent_target_has_a_line_and_no_share() {
        let mut targets = targets();
        targets[5].errno = Errno::ENODATA.0;
        targets[4].errno = Errno::EAGAIN.0;
        let line = Line::try_parse_from(["df"]).unwrap();
        let text = table(&line.df, "/mnt/l", &targets);
        assert!(text.contains("lustre-OST0002_UUID : Resource temporarily unavailable\n"));
        assert!(!text.contains("OST0003"));
        assert!(
            text.contains(
                "filesystem_summary:       643008       26888      560488   5%  /mnt/l \n"
            )
        );
    }
}
