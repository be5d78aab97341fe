//! The built binary: what it says to wrong command lines, and against a process with a control
//! socket.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use sheen_control::{Command, Server, Tree};
use sheen_types::Errno;

const SHEEN: &str = env!("CARGO_BIN_EXE_sheen");

/// A folder of its own for each test, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sheen-tools-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Said {
    code: i32,
    out: String,
    error: String,
}

fn call(program: &Path, run_folder: &Path, words: &[&str]) -> Said {
    let output =
        Process::new(program).args(words).env("SHEEN_RUN_DIR", run_folder).output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        error: String::from_utf8(output.stderr).unwrap(),
    }
}

fn sheen(folder: &Folder, words: &str) -> Said {
    call(Path::new(SHEEN), &folder.0, &words.split(' ').collect::<Vec<_>>())
}

#[test]
fn a_wrong_command_line_gets_one_line() {
    let folder = Folder::new("wrong");
    for (words, code, error) in [
        ("bogus", 2, "sheen: 'bogus' is not a valid command. See 'sheen --help'."),
        ("--bogus", 2, "sheen: unrecognized option '--bogus' (try 'sheen --help')"),
        ("dump -x f", 2, "sheen dump: unrecognized option '-x' (try 'sheen dump --help')"),
        ("lfs bogus", 1, "lfs: 'bogus' is not a valid command. See 'lfs --list-commands'."),
        ("lfs --bogus", 1, "lfs: '--bogus' is not a valid command. See 'lfs --list-commands'."),
        ("lctl bogus", 1, "lctl: 'bogus' is not a valid command. See 'lctl --list-commands'."),
        (
            "lfs migrate -m 1 .",
            25,
            "lfs migrate: . migrate failed: Inappropriate ioctl for device (25)",
        ),
        (
            "lfs migrate -c 1 nofile",
            2,
            "lfs migrate: cannot open 'nofile': No such file or directory (2)",
        ),
        (
            "lfs swap_layouts nofile nofile",
            2,
            "lfs swap_layouts: error: cannot open 'nofile' for write: No such file or directory (2)",
        ),
        (
            "lfs mirror x",
            95,
            "lfs: 'mirror' is not supported by Sheen yet. See 'lfs --list-commands'.",
        ),
        (
            "lfs hsm_state --help",
            95,
            "lfs: 'hsm_state' is not supported by Sheen yet. See 'lfs --list-commands'.",
        ),
        (
            "lfs help quota",
            95,
            "lfs: 'quota' is not supported by Sheen yet. See 'lfs --list-commands'.",
        ),
        (
            "lctl pool_new a.b",
            19,
            "This command must be run on the MGS.\npool_new a.b: No such device",
        ),
        ("lctl pool_new bogus", 22, "pool_new: Invalid argument"),
        (
            "lfs pool_list /tmp",
            2,
            "lfs pool_list: '/tmp' is not on a Lustre filesystem: No such device (19)",
        ),
        ("lctl --device 3 activate", 22, "error: activate: failed: Invalid argument"),
        ("lctl activate", 22, "error: activate: choose a device with --device: Invalid argument"),
        ("lctl --device bogus activate", 1, "No device found for name bogus: Invalid argument"),
        (
            "lctl --net tcp route_list",
            95,
            "lctl: 'route_list' is not supported by Sheen yet. See 'lctl --list-commands'.",
        ),
        (
            "lctl interface_list",
            1,
            "interface_list: You must run the '--net <type>' option before 'interface_list'",
        ),
        (
            "lctl --device bogus abort_recovery_mdt",
            1,
            "No device found for name bogus: Invalid argument",
        ),
        ("lctl llog_print", 4, "llog_print: no logname specified"),
        ("lctl llog_print params", 1, "No device found for name MGS: Invalid argument"),
        ("lctl which_nid bogus@tcp", 1, "Can't parse NID bogus@tcp"),
        ("lctl replace_nids bogus 1.2.3.4@tcp", 22, "error: replace_nids: Invalid argument"),
        ("lctl --dir /tmp dl", 19, "lctl: --dir /tmp: no file system in it is running"),
        ("lfs --dir nodir df", 2, "lfs: --dir nodir: No such file or directory"),
        (
            "lfs mkdir -D d",
            2,
            "lfs mkdir: cannot set default stripe on dir 'd': No such file or directory",
        ),
        ("lfs mkdir -c x d", 4, "lfs mkdir: invalid stripe count 'x'"),
        (
            "lfs getdirstripe --bogus",
            4,
            "lfs getdirstripe: unrecognized option '--bogus' (try 'lfs getdirstripe --help')",
        ),
        (
            "lfs rmfid nofs [0x200000400:0x1:0x0]",
            19,
            "lfs rmfid: error opening 'nofs': No such device",
        ),
        ("lfs getsom nofile", 2, "nofile failed to get som xattr: No such file or directory (2)"),
        (
            "lfs data_version nofile",
            2,
            "lfs data_version: cannot open file 'nofile': No such file or directory",
        ),
        (
            "lfs data_version -n /tmp",
            25,
            "lfs data_version: cannot get version for '/tmp': Inappropriate ioctl for device",
        ),
        (
            "lfs data_version -x f",
            4,
            "lfs data_version: unrecognized option '-x' (try 'lfs data_version --help')",
        ),
        (
            "lnetctl route show",
            95,
            "lnetctl: 'route' is not supported by Sheen yet. See 'lnetctl --help'.",
        ),
        (
            "lnetctl net show --bogus",
            234,
            "lnetctl net show: unrecognized option '--bogus' (try 'lnetctl net show --help')",
        ),
        (
            "lctl conf_param lustre.sys.timeout=20",
            19,
            "This command must be run on the MGS.\nerror: conf_param: No such device",
        ),
        ("lctl conf_param lustre.bogus", 22, "error: conf_param: Invalid argument"),
        (
            "lctl set_param -P osc.*.max_dirty_mb=10",
            19,
            "This command must be run on the MGS.\nerror: executing set_param: No such device",
        ),
        (
            "mount.lustre",
            1,
            "mount.lustre: <MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]> <MNT> must be specified (try 'mount.lustre --help')",
        ),
        (
            "mount",
            22,
            "sheen mount: <MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]> <MNT> must be specified (try 'sheen mount --help')",
        ),
        ("umount.lustre", 1, "umount.lustre: <MNT> must be specified (try 'umount.lustre --help')"),
        ("umount.lustre /tmp", 32, "umount.lustre: /tmp: not mounted"),
        ("lfs df --bogus", 4, "lfs df: unrecognized option '--bogus' (try 'lfs df --help')"),
        (
            "lfs setstripe -q f",
            4,
            "lfs setstripe: unrecognized option '-q' (try 'lfs setstripe --help')",
        ),
        (
            "lfs setstripe -E 1M -z 64M f",
            95,
            "lfs setstripe: option '-z' is not supported by Sheen yet",
        ),
        (
            "lfs setstripe --copy=/nofile f",
            2,
            "lfs setstripe: can't create composite layout from file /nofile: No such file or directory",
        ),
        (
            "lfs setstripe --copy /tmp f",
            25,
            "lfs setstripe: can't create composite layout from file /tmp: Inappropriate ioctl for device",
        ),
        (
            "lfs setstripe --yaml /nofile f",
            22,
            "lfs setstripe: cannot parse YAML file /nofile: No such file or directory",
        ),
        (
            "lfs setstripe -E 1M -E -1 nodir/f",
            1,
            "lfs setstripe: cannot create composite file 'nodir/f': No such file or directory (2)",
        ),
        ("lfs setstripe -S -1 f", 4, "lfs setstripe: invalid stripe size '-1'"),
        ("lfs setstripe -c -3 f", 4, "lfs setstripe: invalid stripe count '-3'"),
        ("lfs getname -f", 4, "lfs getname: unrecognized option '-f' (try 'lfs getname --help')"),
        (
            "lfs check bogus",
            4,
            "lfs check: unrecognized option 'bogus': use mgts, osts, mdts or all",
        ),
        (
            "lfs path2fid nofile",
            2,
            "lfs path2fid: cannot get fid for 'nofile': No such file or directory",
        ),
        ("lfs path2fid /tmp", 61, "lfs path2fid: cannot get fid for '/tmp': No data available"),
        ("lfs getname /tmp", 25, "cannot get instance for '/tmp': Inappropriate ioctl for device"),
        (
            "lfs fid2path /tmp [0x200000400:0x1:0x0]",
            19,
            "lfs fid2path: cannot resolve mount point for '/tmp': No such device",
        ),
        (
            "lfs setstripe -c 1 nodir/f",
            2,
            "lfs setstripe: unable to open 'nodir/f': No such file or directory (2)",
        ),
        (
            "lfs setstripe -c 1 /tmp/sheen-no-such-file",
            25,
            "lfs setstripe: setstripe error for '/tmp/sheen-no-such-file': Inappropriate ioctl for device",
        ),
        (
            "lfs getstripe /tmp",
            25,
            "lfs getstripe: '/tmp' is not on a Lustre filesystem: Inappropriate ioctl for device (25)",
        ),
        ("lfs osts nodir", 2, "error: invalid path 'nodir': No such file or directory"),
        ("lfs df nodir", 2, "error: invalid path 'nodir': No such file or directory"),
        (
            "lctl get_param bogus.*.x",
            2,
            "error: get_param: param_path 'bogus/*/x': No such file or directory",
        ),
        ("lctl ping bogus", 22, "Invalid NID argument \"bogus\""),
        ("lctl ping", 22, "usage: ping id [timeout (secs)]"),
        (
            "mkfs.lustre --mgs --backfstype=zfs d",
            95,
            "mkfs.lustre: option '--backfstype' is not supported by Sheen yet",
        ),
        ("mkfs.lustre --ost d", 22, "mkfs.lustre FATAL: Must specify either --mgs or --mgsnode"),
        (
            "dump /nonexistent.pcap",
            1,
            "sheen dump: /nonexistent.pcap: No such file or directory (os error 2)",
        ),
    ] {
        let said = sheen(&folder, words);
        assert_eq!((said.code, said.error.trim_end()), (code, error), "{words}");
        assert_eq!(said.out, "", "{words}");
    }
    assert!(!Path::new("/tmp/sheen-no-such-file").exists());
    let said = sheen(&folder, "lfs df /tmp");
    assert_eq!((said.code, said.out.as_str()), (95, "df:/tmp Not a Lustre filesystem\n"));
    for words in ["lfs path2fid", "lfs fid2path /mnt/l", "lctl get_param", "lctl set_param"] {
        let said = sheen(&folder, words);
        assert_eq!((said.code, said.error.lines().count()), (4, 1), "{words}: {}", said.error);
        assert!(said.error.contains("must be specified"), "{}", said.error);
    }
}

#[test]
fn help_answers_everywhere() {
    let folder = Folder::new("help");
    for words in [
        "--help",
        "lfs --help",
        "lfs df --help",
        "lfs setstripe -h",
        "lfs check --help",
        "lfs",
        "lctl --help",
        "lctl get_param --help",
        "mkfs.lustre --help",
        "dump --help",
        "lfs --version",
        "lfs help df",
        "lfs --list-commands",
        "lctl --list-commands",
        "lfs version",
        "lctl help",
        "lctl conf_param --help",
    ] {
        let said = sheen(&folder, words);
        assert_eq!((said.code, said.error.as_str()), (0, ""), "{words}");
        assert!(!said.out.is_empty(), "{words}");
    }
}

const BENCHMARKS: [&str; 7] =
    ["mdtest", "ior", "io500", "md-workbench", "mds-survey", "obdfilter-survey", "compare"];

#[test]
fn each_benchmark_has_help_and_refuses_wrong_options_in_a_line() {
    let folder = Folder::new("benchmarks");
    for name in BENCHMARKS {
        let said = sheen(&folder, &format!("bench {name} --help"));
        assert_eq!((said.code, said.error.as_str()), (0, ""), "{name}");
        assert!(said.out.contains(&format!("Usage: sheen bench {name} ")), "{}", said.out);
        let said = sheen(&folder, &format!("bench {name} --bogus"));
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{name}");
        let line = format!(
            "sheen bench {name}: unrecognized option '--bogus' (try 'sheen bench {name} --help')\n"
        );
        assert_eq!(said.error, line);
    }
}

#[test]
fn a_benchmark_shows_its_progress_on_a_terminal_and_nothing_but_the_result_on_a_pipe() {
    let folder = Folder::new("progress");
    let file = folder.0.join("f").display().to_string();
    // Two seconds: the line is written anew four times in each.
    let words = format!("bench ior -w -b 80k -t 4k -O interIODelay=100000 -o {file}");
    let said = sheen(&folder, &words);
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    assert!(said.out.contains("Max Write: ") && !said.out.contains('\r'), "{}", said.out);
    assert!(!said.out.contains(" left"), "{}", said.out);
    let json = folder.0.join("json").display().to_string();
    let words = format!("{words} -O summaryFormat=JSON,summaryFile={json}");
    let terminal = Process::new("script")
        .args(["-qefc", &format!("{SHEEN} {words}"), "/dev/null"])
        .env("SHEEN_RUN_DIR", &folder.0)
        .stdin(Stdio::null())
        .output()
        .expect("script(1)");
    let text = String::from_utf8_lossy(&terminal.stdout).into_owned();
    assert_eq!(terminal.status.code(), Some(0), "{text}");
    let drawn = text.split('\r').filter(|part| part.contains("write: "));
    let is_whole =
        |part: &str| part.contains(" of 20 (") && part.contains("/s, ") && part.contains(" s left");
    assert!(drawn.filter(|part| is_whole(part)).count() > 1, "{text:?}");
}

#[test]
fn versions_name_the_tool() {
    let folder = Folder::new("version");
    for (words, name) in [("--version", "sheen "), ("lfs --version", "lfs "), ("lctl -V", "lctl ")]
    {
        let said = sheen(&folder, words);
        assert!(said.out.starts_with(&format!("{name}2.17.0 ")), "{}", said.out);
    }
}

#[test]
fn a_link_is_the_tool_of_its_name() {
    let folder = Folder::new("link");
    for (name, expected) in [("lfs", "getstripe"), ("lctl", "get_param"), ("mkfs.lustre", "--mgs")]
    {
        let link = folder.0.join(name);
        symlink(SHEEN, &link).unwrap();
        let said = call(&link, &folder.0, &["--help"]);
        assert_eq!(said.code, 0);
        assert!(said.out.contains(expected), "{}", said.out);
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = Folder::new("pipe");
    let mut child = Process::new(SHEEN)
        .args(["lfs", "--help"])
        .env("SHEEN_RUN_DIR", &folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

fn answer(text: &str) -> Command {
    let text = text.to_owned();
    Box::new(move |_| Ok(text.clone()))
}

/// A process that reports a mount at `mount`.
fn mounted(folder: &Folder, mount: &Path) -> Server {
    let info = format!(
        r#"{{"path":"{}","fsname":"lustre","instance":"ff11000015cf2000","uuid":"07e4c342","source":"10.0.0.1@tcp:/lustre"}}"#,
        mount.display()
    );
    let targets = r#"[{"kind":"MDT","index":0,"uuid":"lustre-MDT0000_UUID","device":"lustre-MDT0000-mdc-ff11","active":true},
        {"kind":"OST","index":0,"uuid":"lustre-OST0000_UUID","device":"lustre-OST0000-osc-ff11","active":true},
        {"kind":"MGS","device":"MGC10.0.0.1@tcp","active":true}]"#;
    let statfs = r#"[{"kind":"OST","index":0,"uuid":"lustre-OST0000_UUID","blocks":321504,"bfree":300436,
        "bavail":272620,"bsize":1024,"files":102400,"ffree":101237}]"#;
    let fid2path: Command = Box::new(|words| match words[0].as_str() {
        "[0x200000400:0x1:0x0]" => Ok("0 cfg/f\n1 cfg/g\n".to_owned()),
        "[0x200000400:0x2:0x0]" => Ok("0 a\\012\\134b\n".to_owned()),
        _ => Err((Errno::ENOENT, "none".to_owned())),
    });
    let ping: Command = Box::new(|words| match words[0].as_str() {
        "10.0.0.1@tcp" => Ok("12345-0@lo\n12345-10.0.0.1@tcp".to_owned()),
        _ => Err((Errno::EHOSTUNREACH, "no".to_owned())),
    });
    let commands = BTreeMap::from([
        ("mount_info".to_owned(), answer(&info)),
        ("targets".to_owned(), answer(targets)),
        ("target_statfs".to_owned(), answer(statfs)),
        ("fid2path".to_owned(), fid2path),
        ("ping".to_owned(), ping),
        (
            "devices".to_owned(),
            answer("UP mgc MGC10.0.0.1@tcp cbe1 5\nUP osc o 07e4 5 10.0.0.1@tcp\n"),
        ),
        ("nids".to_owned(), answer("10.0.0.2@tcp\n")),
    ]);
    let tree = Arc::new(Tree::new());
    tree.add("version", || "2.17.0".to_owned());
    tree.add("llite.a.max_cached_mb", || "users: 8\nused_mb: 3\n".to_owned());
    tree.add_writable(
        "osc.a.max_dirty_mb",
        || "309".to_owned(),
        |text| text.parse::<u32>().map(|_| ()).map_err(|_| Errno::EINVAL),
    );
    Server::start(&folder.0.join("mount.sock"), tree, commands).unwrap()
}

#[test]
fn lfs_asks_the_mount() {
    let (folder, place) = (Folder::new("lfs"), Folder::new("mnt"));
    let mount = std::fs::canonicalize(&place.0).unwrap();
    let _server = mounted(&folder, &mount);
    let at = mount.display();
    for (words, out) in [
        ("lfs osts".to_owned(), "OBDS:\n0: lustre-OST0000_UUID ACTIVE\n".to_owned()),
        (format!("lfs mdts {at}"), "MDTS:\n0: lustre-MDT0000_UUID ACTIVE\n".to_owned()),
        (
            "lfs check all".to_owned(),
            "lustre-OST0000-osc-ff11 active.\nlustre-MDT0000-mdc-ff11 \
            active.\nMGC10.0.0.1@tcp active.\n"
                .to_owned(),
        ),
        ("lfs getname".to_owned(), format!("lustre-ff11000015cf2000 {at}\n")),
        (format!("lfs getname -n {at}"), "lustre\n".to_owned()),
        ("lfs getname -u".to_owned(), format!("07e4c342 {at}\n")),
        (format!("lfs fid2path {at} [0x200000400:0x1:0x0]"), format!("{at}/cfg/f\n{at}/cfg/g\n")),
        ("lfs fid2path -n lustre 0x200000400:0x1:0x0".to_owned(), "f\ng\n".to_owned()),
        ("lfs fid2path -0 lustre 0x200000400:0x2:0x0".to_owned(), "a\n\\b\0".to_owned()),
    ] {
        let said = sheen(&folder, &words);
        assert_eq!((said.out, said.error.as_str(), said.code), (out, "", 0), "{words}");
    }
    for words in ["lfs df -o".to_owned(), "lfs df -o0".to_owned(), format!("lfs df -o {at}")] {
        let said = sheen(&folder, &words);
        assert_eq!(said.code, 0);
        assert!(said.out.contains(&format!("272620   8%  {at}[OST:0] \n")), "{}", said.out);
    }
    assert!(!sheen(&folder, "lfs df -o7").out.contains("[OST:"));
    let said = sheen(&folder, "lfs fid2path lustre [0x1:0x1:0x0] bogus");
    assert_eq!(said.code, 22);
    assert_eq!(
        said.error,
        "lfs fid2path: cannot find lustre [0x1:0x1:0x0]: No such file or \
        directory\nlfs fid2path: invalid FID 'bogus'\n"
    );
}

#[test]
fn lctl_asks_the_processes() {
    let folder = Folder::new("lctl");
    let _server = mounted(&folder, Path::new("/mnt/l"));
    for (words, code, out, error) in [
        ("lctl get_param osc.*.max_dirty_mb", 0, "osc.a.max_dirty_mb=309\n", ""),
        ("lctl get_param -F osc.a.max_dirty_mb", 0, "osc.a.max_dirty_mb==309\n", ""),
        ("lctl get_param -N osc/*/*", 0, "osc.a.max_dirty_mb\n", ""),
        ("lctl get_param llite.*.*", 0, "llite.a.max_cached_mb=\nusers: 8\nused_mb: 3\n", ""),
        ("lctl get_param -R osc", 0, "osc.a.max_dirty_mb=309\n", ""),
        (
            "lctl get_param -n bogus version",
            2,
            "2.17.0\n",
            "error: get_param: param_path 'bogus': No such file or directory\n",
        ),
        ("lctl get_param -R bogus", 2, "", ""),
        ("lctl set_param osc.*.max_dirty_mb=20", 0, "osc.a.max_dirty_mb=20\n", ""),
        ("lctl set_param -n osc.*.max_dirty_mb=20", 0, "", ""),
        ("lctl set_param bogus", 22, "", "error: set_param: setting bogus: Invalid argument\n"),
        (
            "lctl set_param osc.*.max_dirty_mb=x",
            22,
            "",
            "error: set_param: setting osc/a/max_dirty_mb=x: Invalid argument\n\
             error: set_param: setting 'osc/*/max_dirty_mb'='x': Invalid argument\n",
        ),
        (
            "lctl set_param -n version=1",
            13,
            "",
            "error: set_param: opening 'version': Permission denied\n\
             error: set_param: setting 'version'='1': Permission denied\n",
        ),
        (
            "lctl set_param -d osc.*.max_dirty_mb",
            19,
            "",
            "warning: setting '-P' option with '-d'\nThis command must be run on the MGS.\n\
             error: executing set_param: No such device\n",
        ),
        ("lctl list_param -F *", 0, "llite/\nosc/\nversion\n", ""),
        ("lctl list_param -R osc", 0, "osc\nosc.a\nosc.a.max_dirty_mb\n", ""),
        ("lctl list_param -D osc.*", 0, "osc.a\n", ""),
        ("lctl list_param -w *.*.*", 0, "osc.a.max_dirty_mb\n", ""),
        ("lctl dl", 0, "  0 UP mgc MGC10.0.0.1@tcp cbe1 5\n  1 UP osc o 07e4 5\n", ""),
        ("lctl list_nids", 0, "10.0.0.2@tcp\n", ""),
        ("lctl ping 10.0.0.1@tcp", 0, "12345-0@lo\n12345-10.0.0.1@tcp\n", ""),
        ("lctl ping 10.0.0.9@tcp", 113, "failed to ping 10.0.0.9@tcp: No route to host\n", ""),
    ] {
        let said = sheen(&folder, words);
        assert_eq!(
            (said.code, said.out.as_str(), said.error.as_str()),
            (code, out, error),
            "{words}"
        );
    }
}

#[test]
fn a_target_is_formatted_once() {
    let folder = Folder::new("mkfs");
    let store = folder.0.join("ost0");
    let words = format!(
        "mkfs.lustre --ost --fsname=lustre --index=0 --mgsnode=10.0.0.1@tcp \
        --device-size=65536 {}",
        store.display()
    );
    let said = sheen(&folder, &format!("{words} --dryrun"));
    assert_eq!(said.code, 0);
    assert!(said.out.contains("Target:     lustre:OST0000\n"), "{}", said.out);
    assert!(!store.exists());
    let said = sheen(&folder, &words);
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    let config = std::fs::read_to_string(store.join("CONFIG")).unwrap();
    for line in [
        "types=ost",
        "fsname=lustre",
        "index=0",
        "mgsnode=10.0.0.1@tcp",
        "capacity_bytes=67108864",
        "label=lustre-OST0000",
    ] {
        assert!(config.lines().any(|found| found == line), "{config}");
    }
    let said = sheen(&folder, &format!("{words} --quiet"));
    assert_eq!((said.code, said.out.as_str()), (17, ""));
    assert!(
        said.error.contains("previously formatted for lustre (lustre-OST0000)"),
        "{}",
        said.error
    );
    assert_eq!(sheen(&folder, &format!("{words} --reformat")).code, 0);
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(sheen(&folder, &format!("mkfs.lustre --mgs {}", file.display())).code, 20);
    let said = sheen(&folder, &format!("mkfs.lustre --mgs --reformat {}", folder.0.display()));
    assert_eq!(said.code, 39);
    assert!(file.exists(), "{}", said.error);
}

/// Whatever their directories are called, and before they were ever started.
#[test]
fn fsck_looks_at_targets_of_mkfs_or_says_what_to_type() {
    let folder = Folder::new("fsck-mkfs");
    let top = folder.0.join("my targets");
    let all = top.display().to_string();
    let fsck = |place: &str| call(Path::new(SHEEN), &folder.0, &["fsck", "--dir", place]);
    std::fs::create_dir(&top).expect("a directory");
    let said = fsck(&all);
    assert_eq!(said.code, 8, "{}", said.error);
    assert!(said.error.contains("no targets in it"), "{}", said.error);
    assert!(!top.join("run").exists(), "it leaves nothing");
    for (name, words) in [
        ("m", &["--mgs"][..]),
        ("meta", &["--mdt", "--fsname", "x", "--index", "0", "--mgsnode", "127.0.0.9@tcp"]),
        ("data", &["--ost", "--fsname", "x", "--index", "0", "--mgsnode", "127.0.0.9@tcp"]),
    ] {
        let place = top.join(name).display().to_string();
        let words = [&["mkfs.lustre"], words, &[&*place]].concat();
        assert_eq!(call(Path::new(SHEEN), &folder.0, &words).code, 0, "{name}");
    }
    let said = fsck(&all);
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    assert!(said.out.contains("x-MDT0000: it was never started"), "{}", said.out);
    assert!(said.out.contains(" 0 problems"), "{}", said.out);
    let said = fsck(&top.join("meta").display().to_string());
    let types = format!("sheen fsck --dir '{all}'");
    assert_eq!(said.code, 8, "{}", said.error);
    assert!(
        said.error.contains("x-MDT0000") && said.error.trim_end().ends_with(&types),
        "{}",
        said.error
    );
}
