//! The options of `mount -o`: what each does here, and why those are refused or ignored that do nothing.
//!
//! One table has them all: [`TABLE`], in the order of mount(8) and mount.lustre(8). An option that is not in it is
//! refused by its name.

use rustix::mount::MountFlags;
use sheen_client::posix::AccessTimes;
use sheen_fuse::FileLocks;
use sheen_types::{Errno, NetType, Nid};

use super::invalid;
use sheen_tools::output::Fault;

/// What an option does.
#[derive(Clone, Copy)]
enum Effect {
    /// The kernel's flags: the first are set, the second cleared.
    Flags(MountFlags, MountFlags),
    /// Something of the client.
    Set(fn(&mut Settings)),
    /// Something of the client, by a value; `None` if it is none.
    Take(fn(&mut Settings, &str) -> Option<()>),
    /// It is always so, or only mount(8) and systemd look at it.
    Nothing,
    /// It does nothing, which one line says: why.
    Ignored(&'static str),
    /// It is refused: why.
    Refused(&'static str),
}

use Effect::{Flags, Ignored, Nothing, Refused, Set, Take};

const NONE: MountFlags = MountFlags::empty();
/// How accesses are noted: one of them at most.
const ACCESS: MountFlags =
    MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);
const NO_RIGHTS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

const OF_SERVERS: &str = "it is an option of servers";
const NO_ENCRYPTION: &str = "encryption is not supported";
const NO_SECURITY: &str = "Sheen has no security flavours";
const NO_FOREIGN: &str = "there are no foreign files here";

/// Every option that is known, those with a value with `=` at the end.
const TABLE: &[(&str, Effect)] = &[
    // What the kernel does.
    ("rw", Flags(NONE, MountFlags::RDONLY)),
    ("ro", Flags(MountFlags::RDONLY, NONE)),
    ("suid", Flags(NONE, MountFlags::NOSUID)),
    ("nosuid", Flags(MountFlags::NOSUID, NONE)),
    ("dev", Flags(NONE, MountFlags::NODEV)),
    ("nodev", Flags(MountFlags::NODEV, NONE)),
    ("exec", Flags(NONE, MountFlags::NOEXEC)),
    ("noexec", Flags(MountFlags::NOEXEC, NONE)),
    ("async", Flags(NONE, MountFlags::SYNCHRONOUS)),
    ("sync", Flags(MountFlags::SYNCHRONOUS, NONE)),
    ("atime", Flags(NONE, MountFlags::NOATIME)),
    ("noatime", Flags(MountFlags::NOATIME, ACCESS)),
    ("diratime", Flags(NONE, MountFlags::NODIRATIME)),
    ("nodiratime", Flags(MountFlags::NODIRATIME, NONE)),
    ("relatime", Flags(MountFlags::RELATIME, ACCESS)),
    ("norelatime", Flags(NONE, MountFlags::RELATIME)),
    ("strictatime", Flags(MountFlags::STRICTATIME, ACCESS)),
    ("nostrictatime", Flags(NONE, MountFlags::STRICTATIME)),
    ("lazytime", Flags(MountFlags::LAZYTIME, NONE)),
    ("nolazytime", Flags(NONE, MountFlags::LAZYTIME)),
    ("symfollow", Flags(NONE, MountFlags::NOSYMFOLLOW)),
    ("nosymfollow", Flags(MountFlags::NOSYMFOLLOW, NONE)),
    (
        "dirsync",
        Refused(
            "changes of names are durable within a second, and at once with fsync of their directory",
        ),
    ),
    ("mand", Refused("Linux has no mandatory locks any more")),
    ("nomand", Nothing),
    ("iversion", Refused("FUSE has no versions of inodes")),
    ("noiversion", Nothing),
    ("silent", Nothing),
    ("loud", Nothing),
    // What mount(8), fstab(5) and systemd look at.
    ("defaults", Nothing),
    ("remount", Set(|it| it.remount = true)),
    ("user", Flags(NO_RIGHTS.union(MountFlags::NOEXEC), NONE)),
    ("users", Flags(NO_RIGHTS.union(MountFlags::NOEXEC), NONE)),
    ("owner", Flags(NO_RIGHTS, NONE)),
    ("group", Flags(NO_RIGHTS, NONE)),
    ("nouser", Nothing),
    ("nousers", Nothing),
    ("noowner", Nothing),
    ("nogroup", Nothing),
    ("user=", Nothing),
    ("auto", Nothing),
    ("noauto", Nothing),
    ("nofail", Nothing),
    ("fail", Nothing),
    ("_netdev", Nothing),
    ("comment=", Nothing),
    // What the kernel's table shows of FUSE, and mount(8) passes on with a remount.
    ("user_id=", Nothing),
    ("group_id=", Nothing),
    ("rootmode=", Nothing),
    ("max_read=", Nothing),
    ("blksize=", Nothing),
    // Clients of Lustre.
    ("flock", Set(|it| it.locks = FileLocks::Shared)),
    ("localflock", Set(|it| it.locks = FileLocks::Local)),
    ("noflock", Set(|it| it.locks = FileLocks::Refused)),
    ("user_xattr", Set(|it| it.user_xattrs = true)),
    ("nouser_xattr", Set(|it| it.user_xattrs = false)),
    ("user_fid2path", Set(|it| it.users_resolve_fids = true)),
    ("nouser_fid2path", Set(|it| it.users_resolve_fids = false)),
    ("checksum", Set(|it| it.tune("llite.*.checksums", "1"))),
    ("nochecksum", Set(|it| it.tune("llite.*.checksums", "0"))),
    ("lazystatfs", Set(|it| it.tune("llite.*.lazystatfs", "1"))),
    ("nolazystatfs", Set(|it| it.tune("llite.*.lazystatfs", "0"))),
    ("sync_on_close", Set(|it| it.tune("llite.*.sync_on_close", "1"))),
    ("nosync_on_close", Set(|it| it.tune("llite.*.sync_on_close", "0"))),
    ("lruresize", Set(|it| it.tune(LRU, "0"))),
    ("nolruresize", Set(|it| it.tune(LRU, &locks_kept().to_string()))),
    ("verbose", Set(|it| it.verbose = true)),
    ("noverbose", Set(|it| it.verbose = false)),
    (
        "retry=",
        Take(|it, text| {
            text.parse::<i64>().ok().map(|count| it.retries = count.clamp(0, RETRIES_MAX) as u32)
        }),
    ),
    ("exclude=", Take(exclude)),
    ("network=", Take(network)),
    ("mgsname=", Take(|it, text| (!text.is_empty()).then(|| it.mgs_name = Some(text.to_owned())))),
    ("force", Set(|it| it.force = true)),
    ("always_ping", Nothing),
    ("acl", Nothing),
    ("noencrypt", Nothing),
    ("statfs_project", Nothing),
    ("nostatfs_project", Nothing),
    ("64bitapi", Nothing),
    ("context=", Take(|it, text| it.context("context", text))),
    ("fscontext=", Take(|it, text| it.context("fscontext", text))),
    ("defcontext=", Take(|it, text| it.context("defcontext", text))),
    ("rootcontext=", Take(|it, text| it.context("rootcontext", text))),
    ("encrypt", Ignored(NO_ENCRYPTION)),
    ("test_dummy_encryption", Ignored(NO_ENCRYPTION)),
    ("test_dummy_encryption=", Ignored(NO_ENCRYPTION)),
    ("noacl", Refused(OF_SERVERS)),
    ("32bitapi", Refused("inode numbers have 64 bits here")),
    ("nolock", Refused("what clients cache is right because of their locks")),
    ("foreign_symlink=", Refused(NO_FOREIGN)),
    ("user_principal=", Refused(NO_SECURITY)),
    ("skpath=", Refused(NO_SECURITY)),
    ("mgssec=", Take(|_, flavour| (flavour == "null").then_some(()))),
    // Servers of Lustre: a client takes no notice.
    ("abort_recov", Ignored(OF_SERVERS)),
    ("abort_recovery", Ignored(OF_SERVERS)),
    ("abort_recov_mdt", Ignored(OF_SERVERS)),
    ("abort_recovery_mdt", Ignored(OF_SERVERS)),
    ("nosvc", Ignored(OF_SERVERS)),
    ("nomgs", Ignored(OF_SERVERS)),
    ("noscrub", Ignored(OF_SERVERS)),
    ("skip_lfsck", Ignored(OF_SERVERS)),
    ("no_create", Ignored(OF_SERVERS)),
    ("no_precreate", Ignored(OF_SERVERS)),
    ("noir", Ignored(OF_SERVERS)),
    ("noprimnode", Ignored(OF_SERVERS)),
    ("nolocallogs", Ignored(OF_SERVERS)),
    ("localrecov", Ignored(OF_SERVERS)),
    ("rdonly_dev", Ignored(OF_SERVERS)),
    ("writeconf", Ignored(OF_SERVERS)),
    ("update", Ignored(OF_SERVERS)),
    ("virgin", Ignored(OF_SERVERS)),
    ("recovery_time_soft=", Ignored(OF_SERVERS)),
    ("recovery_time_hard=", Ignored(OF_SERVERS)),
    ("md_stripe_cache_size=", Ignored(OF_SERVERS)),
    ("max_sectors_kb=", Ignored(OF_SERVERS)),
    // Ours.
    ("allow_other", Set(|it| it.allow_other = true)),
    ("default_permissions", Set(|it| it.judge = true)),
    ("nodefault_permissions", Set(|it| it.judge = false)),
    ("port=", Take(|it, text| text.parse().ok().map(|port| it.port = Some(port)))),
    ("nid=", Take(|it, text| text.parse().ok().map(|nid| it.nid = Some(nid)))),
];

/// Unused locks that are kept of each target.
const LRU: &str = "ldlm.namespaces.*.lru_size";
/// `MAX_RETRIES` of `mount.lustre`.
const RETRIES_MAX: i64 = 99;
/// `LDLM_DEFAULT_LRU_SIZE` for each processor.
const LOCKS_OF_A_PROCESSOR: usize = 100;
/// Bytes that all options have at most: a page, as in Lustre.
const BYTES_MAX: usize = 4096;

/// What `-o` said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// What the kernel does.
    pub(super) flags: MountFlags,
    /// Change a mount that is there.
    pub(super) remount: bool,
    /// Mount although it is mounted there already.
    pub(super) force: bool,
    /// Whether the log has the mount's begin and end.
    pub(super) verbose: bool,
    /// How often it is tried again.
    pub(super) retries: u32,
    pub(super) allow_other: bool,
    pub(super) judge: bool,
    pub(super) locks: FileLocks,
    pub(super) user_xattrs: bool,
    pub(super) users_resolve_fids: bool,
    pub(super) port: Option<u16>,
    pub(super) nid: Option<Nid>,
    /// Only NIDs of this network are used: its type and number.
    pub(super) network: Option<(NetType, u16)>,
    /// What is shown in place of the MGS's NIDs.
    pub(super) mgs_name: Option<String>,
    /// For security modules of the kernel.
    pub(super) contexts: Vec<String>,
    /// Parameters that are set once it is mounted, with their values; the last one counts.
    pub(super) parameters: Vec<(String, String)>,
    /// What was ignored, a line each.
    pub(super) ignored: Vec<String>,
}

impl Settings {
    /// Nothing was said, by the user who mounts.
    fn new(is_root: bool) -> Self {
        Self {
            flags: NO_RIGHTS,
            remount: false,
            force: false,
            verbose: true,
            retries: 0,
            allow_other: is_root,
            judge: false,
            locks: FileLocks::Shared,
            user_xattrs: true,
            users_resolve_fids: false,
            port: None,
            nid: None,
            network: None,
            mgs_name: None,
            contexts: Vec::new(),
            parameters: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Takes `options`, separated by commas, one after the other.
    ///
    /// # Errors
    /// `EINVAL` for what is unknown, refused or no value, `EPERM` for what is root's alone, `E2BIG`.
    pub(super) fn parse(options: &str, is_root: bool) -> Result<Self, Fault> {
        Self::new(is_root).and(options, is_root, false)
    }

    /// As [`Self::parse`], but what is unknown is ignored (`mount -s`).
    pub(super) fn parse_sloppy(options: &str, is_root: bool) -> Result<Self, Fault> {
        Self::new(is_root).and(options, is_root, true)
    }

    /// What these options make of a mount that has `flags`.
    pub(super) fn changed(flags: MountFlags, options: &str) -> Result<Self, Fault> {
        Self { flags, ..Self::new(true) }.and(options, true, true)
    }

    fn and(mut self, options: &str, is_root: bool, sloppy: bool) -> Result<Self, Fault> {
        if options.len() >= BYTES_MAX {
            let length = options.len();
            let text = format!("error: mount options too long, {length} over limit {BYTES_MAX}");
            return Err(Fault::new(Errno::E2BIG, text));
        }
        for option in split(options) {
            self.take(option, is_root, sloppy)?;
        }
        Ok(self)
    }

    fn take(&mut self, option: &str, is_root: bool, sloppy: bool) -> Result<(), Fault> {
        let fault = |why: &str| Err(invalid(format!("mount.lustre: mount option '{option}'{why}")));
        if !is_root && is_of_root(option) {
            let text = format!("mount.lustre: mount option '{option}' is for root alone");
            return Err(Fault::new(Errno::EPERM, text));
        }
        match effect(option) {
            Some((Flags(set, clear), _)) => self.flags = self.flags.difference(clear).union(set),
            Some((Set(set), _)) => set(self),
            Some((Take(take), value)) => {
                if take(self, value.trim_matches('"')).is_none() {
                    return fault(": not a legal value");
                }
            }
            Some((Nothing, _)) => {}
            Some((Ignored(why), _)) => self.ignore(option, why),
            Some((Refused(why), _)) => return fault(&format!(" is not supported: {why}")),
            None if sloppy => self.ignore(option, "it is not known"),
            None => return fault(" is not supported"),
        }
        Ok(())
    }

    fn ignore(&mut self, option: &str, why: &str) {
        self.ignored.push(format!("mount.lustre: mount option '{option}' is ignored: {why}"));
    }

    fn tune(&mut self, parameter: &str, value: &str) {
        self.parameters.push((parameter.to_owned(), value.to_owned()));
    }

    fn context(&mut self, name: &str, value: &str) -> Option<()> {
        match knows_contexts() {
            true => self.contexts.push(format!("{name}=\"{value}\"")),
            false => self.ignore(name, "this kernel has no SELinux"),
        }
        (!value.is_empty()).then_some(())
    }

    /// How reading changes times of access.
    pub(super) fn access_times(&self) -> AccessTimes {
        access_times(self.flags)
    }
}

/// How reading changes times of access on a mount with these flags.
pub(super) fn access_times(flags: MountFlags) -> AccessTimes {
    match flags {
        flags if flags.intersects(MountFlags::RDONLY | MountFlags::NOATIME) => AccessTimes::Never,
        flags if flags.contains(MountFlags::STRICTATIME) => AccessTimes::Always,
        _ => AccessTimes::Relative,
    }
}

/// What `option` does, and its value.
fn effect(option: &str) -> Option<(Effect, &str)> {
    let (name, value) = match option.find('=') {
        Some(at) => option.split_at(at + 1),
        None => (option, ""),
    };
    if ["x-", "X-"].iter().any(|prefix| name.starts_with(prefix)) {
        return Some((Nothing, value));
    }
    TABLE.iter().find(|(known, _)| *known == name).map(|(_, effect)| (*effect, value))
}

/// What gives rights that a user has not.
fn is_of_root(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    ["suid", "dev", "remount", "nosymfollow"].contains(&name) || name.ends_with("context")
}

/// The options, at the commas that no quotes are around.
fn split(options: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let parts = options.split(move |character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    });
    parts.map(str::trim).filter(|option| !option.is_empty())
}

/// OSTs, by name with colons between them, that are not used.
fn exclude(settings: &mut Settings, names: &str) -> Option<()> {
    for name in names.split(':') {
        let index = name.rsplit_once("-OST")?.1;
        u16::from_str_radix(index, 16).ok()?;
        settings.tune(&format!("osc.{name}-osc-*.active"), "0");
    }
    Some(())
}

fn network(settings: &mut Settings, name: &str) -> Option<()> {
    let any: Nid = format!("0.0.0.0@{name}").parse().ok()?;
    settings.network = Some((any.net_type(), any.net_number()));
    Some(())
}

/// How many unused locks are kept where their number is fixed.
fn locks_kept() -> usize {
    LOCKS_OF_A_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the kernel has SELinux, which takes contexts.
fn knows_contexts() -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.ends_with("selinuxfs"))
}

/// What `sheen mount --help` says of the options.
pub(super) fn help() -> String {
    let names = |wanted: fn(&Effect) -> bool| {
        let names = TABLE.iter().filter(|(_, effect)| wanted(effect)).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(" ")
    };
    format!(
        "Options of -o that have an effect:\n  {}\n\n\
         Options that are always in effect, or are for mount(8) and systemd, as those that begin with x-:\n  {}\n\n\
         Options that are ignored, with a warning:\n  {}\n\nOptions that are refused, as is any other:\n  {}\n\n\
         nosuid and nodev are in effect unless root gives suid or dev. Parameters in \
         /etc/lustre/mount.client.params and /etc/lustre/mount.FSNAME.params are set after each mount.",
        names(|it| matches!(it, Flags(..) | Set(_) | Take(_))),
        names(|it| matches!(it, Nothing)),
        names(|it| matches!(it, Ignored(_))),
        names(|it| matches!(it, Refused(_))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Settings {
        Settings::parse(options, true).unwrap_or_else(|fault| panic!("{}", fault.text))
    }

    fn refused(options: &str, is_root: bool) -> (u8, String) {
        let fault = Settings::parse(options, is_root).expect_err(options);
        (fault.code, fault.text)
    }

    #[test]
    fn the_last_word_on_access_times_counts() {
        let access_times = |text: &str| parse(text).access_times();
        assert_eq!(access_times(""), AccessTimes::Relative);
        assert_eq!(access_times("noatime"), AccessTimes::Never);
        assert_eq!(access_times("noatime,strictatime"), AccessTimes::Always);
        assert_eq!(access_times("strictatime,relatime"), AccessTimes::Relative);
        assert_eq!(access_times("noatime,atime"), AccessTimes::Relative);
        assert_eq!(access_times("strictatime,nostrictatime"), AccessTimes::Relative);
        assert_eq!(access_times("strictatime,ro"), AccessTimes::Never);
        assert_eq!(refused("noatime=1", true).0, 22);
    }

    #[test]
    fn unknown_options_are_refused_by_name_and_ignored_where_that_is_asked_for() {
        let settings = parse("ro,port=1234,flock");
        assert!(settings.flags.contains(MountFlags::RDONLY) && settings.port == Some(1234));
        assert!(refused("bogus", false).1.contains("'bogus'"));
        assert_eq!(refused("port=x", true).0, 22);
        let sloppy = Settings::parse_sloppy("bogus,noexec", true).expect("sloppy");
        assert!(sloppy.ignored[0].contains("'bogus'"));
        assert!(sloppy.flags.contains(MountFlags::NOEXEC));
        assert_eq!(refused(&"x-a,".repeat(1024), true).0, 7);
    }

    #[test]
    fn what_cannot_be_done_is_refused_or_ignored_with_the_reason() {
        for (option, why) in [
            ("dirsync", "fsync"),
            ("noacl", "servers"),
            ("32bitapi", "64 bits"),
            ("nolock", "locks"),
            ("skpath=/x", "security"),
            ("mgssec=ska", "legal value"),
            ("retry=soon", "legal value"),
            ("exclude=nothing", "legal value"),
            ("network=o2ib", "legal value"),
        ] {
            let (code, text) = refused(option, true);
            assert!(code == 22 && text.contains(option) && text.contains(why), "{text}");
        }
        for option in ["abort_recov", "writeconf", "test_dummy_encryption", "max_sectors_kb=4"] {
            let ignored = parse(option).ignored;
            assert!(ignored.len() == 1 && ignored[0].contains(option), "{ignored:?}");
        }
        assert_eq!(
            parse("defaults,_netdev,nofail,x-systemd.requires=a.service,user_xattr").ignored.len(),
            0
        );
    }

    #[test]
    fn set_id_bits_and_devices_work_only_where_root_says_so() {
        let flags = |text: &str| parse(text).flags;
        assert_eq!(flags(""), NO_RIGHTS);
        assert_eq!(flags("suid,dev"), NONE);
        assert_eq!(flags("suid,dev,nosuid,nodev"), NO_RIGHTS);
        assert_eq!(flags("user"), NO_RIGHTS | MountFlags::NOEXEC);
        assert_eq!(flags("user,exec"), NO_RIGHTS);
        assert_eq!(flags("suid,owner"), MountFlags::NOSUID | MountFlags::NODEV);
        for option in ["suid", "dev", "remount", "context=a"] {
            assert_eq!(refused(option, false).0, 1, "{option}");
        }
        assert!(Settings::parse("nosuid,nodev", false).is_ok());
        assert!(!parse("ro").judge && parse("ro,default_permissions").judge);
        assert!(!parse("default_permissions,nodefault_permissions").judge);
    }

    #[test]
    fn options_of_clients_set_what_they_name() {
        let settings = parse("noflock,nouser_xattr,user_fid2path,noverbose,retry=200,network=tcp1");
        assert_eq!(settings.locks, FileLocks::Refused);
        assert!(!settings.user_xattrs && settings.users_resolve_fids && !settings.verbose);
        assert_eq!((settings.retries, settings.network), (99, Some((NetType::TCP, 1))));
        let tuned = parse("nochecksum,exclude=lustre-OST0001:lustre-OST001f").parameters;
        let tuned: Vec<_> = tuned.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            tuned,
            [
                "llite.*.checksums=0",
                "osc.lustre-OST0001-osc-*.active=0",
                "osc.lustre-OST001f-osc-*.active=0",
            ]
        );
    }

    #[test]
    fn a_comma_in_quotes_separates_nothing() {
        let parts: Vec<&str> = split("ro,context=\"a:b:s0:c1,c2\",,noexec").collect();
        assert_eq!(parts, ["ro", "context=\"a:b:s0:c1,c2\"", "noexec"]);
    }

    #[test]
    fn a_remount_begins_with_what_the_mount_has() {
        let flags = |text: &str| {
            Settings::changed(NO_RIGHTS | MountFlags::RELATIME, text).map(|it| it.flags)
        };
        assert_eq!(flags("remount,ro"), Ok(NO_RIGHTS | MountFlags::RELATIME | MountFlags::RDONLY));
        assert_eq!(flags("remount,suid,noatime"), Ok(MountFlags::NODEV | MountFlags::NOATIME));
    }

    /// What users are promised is what there is.
    #[test]
    fn the_documentation_has_every_option() {
        let text = include_str!("../../../../docs/COMPAT.md");
        let words = || text.split(|it: char| it.is_whitespace() || "`|,;()".contains(it));
        for (name, _) in TABLE {
            let name = name.trim_end_matches('=');
            let is_there = words().any(|word| word.split('=').next() == Some(name));
            assert!(is_there, "docs/COMPAT.md does not have the mount option {name}");
        }
    }
}
