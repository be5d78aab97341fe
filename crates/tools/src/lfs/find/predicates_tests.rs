use std::cell::Cell;
use std::ffi::OsStr;

use rustix::fs::{FileType, Statx};
use sheen_types::Errno;
use sheen_wire::lmv::LmvHash;
use sheen_wire::lov::{CompFlags, LovEa};

use super::{File, Test, Tests, matches};
use crate::lfs::attributes::Xattr;
use crate::lfs::find::options::GRAMMAR;
use crate::lfs::find::values::symbolic;
use crate::lfs::find::{Find, newer_apart};
use crate::lfs::layout_request::{self, LayoutRequest};

/// A file with a layout, that counts what it was asked for.
struct Made {
    name: &'static str,
    kind: FileType,
    layout: Option<LovEa>,
    asked: Cell<usize>,
}

impl File for Made {
    fn name(&self) -> &OsStr {
        OsStr::new(self.name)
    }

    fn kind(&self) -> Result<FileType, Errno> {
        Ok(self.kind)
    }

    fn attributes(&self) -> Result<&Statx, Errno> {
        Err(Errno::EIO)
    }

    fn layout(&self) -> Result<Option<&LovEa>, Errno> {
        self.asked.set(self.asked.get() + 1);
        Ok(self.layout.as_ref())
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        Ok(vec![(b"user.job".to_vec(), b"202310.7\nx".to_vec()), (b"user.x".to_vec(), vec![0xff])])
    }

    fn stripes(&self) -> Result<(u64, LmvHash), Errno> {
        self.asked.set(self.asked.get() + 1);
        Ok((2, LmvHash::CRUSH))
    }

    fn mdt(&self) -> Result<u32, Errno> {
        Ok(0)
    }
}

fn layout(line: &str) -> LovEa {
    let words: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
    let mut request = LayoutRequest::new("");
    let grammar = crate::lfs::options::Grammar { tables: &[layout_request::OPTIONS], ..GRAMMAR };
    for part in grammar.read(&words).unwrap() {
        if let crate::lfs::options::Part::Option { name, value, .. } = part {
            request.option(name, &value.unwrap_or_default()).unwrap();
        }
    }
    request.finish().unwrap()
}

fn file(line: &str) -> Made {
    let mut layout = layout(line);
    if let LovEa::Composite(all) = &mut layout {
        all.components[0].entry.flags = CompFlags::INIT;
    }
    Made { name: "f", kind: FileType::RegularFile, layout: Some(layout), asked: Cell::new(0) }
}

fn folder(line: &str) -> Made {
    let layout = (!line.is_empty()).then(|| layout(line));
    Made { name: "d", kind: FileType::Directory, layout, asked: Cell::new(0) }
}

fn tests(line: &str) -> Tests {
    let words: Vec<std::ffi::OsString> =
        format!("/x {line}").split_whitespace().map(Into::into).collect();
    Find::read(GRAMMAR.read(&words).unwrap()).unwrap().tests
}

fn fits(line: &str, file: &Made) -> bool {
    tests(line).fit(file).unwrap()
}

/// What the capture o4-lfs-find-mdt-layout shows.
#[test]
fn layouts_are_found_as_lustre_finds_them() {
    let ends = ["64k", "128k", "1M"];
    let on_mdt = |end: &str| format!("-E {end} -L mdt -E -1");
    let files: Vec<Made> = ends.iter().map(|end| file(&on_mdt(end))).collect();
    let folders: Vec<Made> = ends.iter().map(|end| folder(&on_mdt(end))).collect();
    let (plain, two) = (file("-S 4M"), file("-c 2 -S 4M"));
    let count = |line: &str| {
        let all = files.iter().chain(&folders).chain([&plain, &two]);
        all.filter(|made| fits(line, made)).count()
    };
    assert_eq!(count("-L mdt"), 6);
    assert_eq!(count("-L mdt -S 1M"), 3);
    assert_eq!(count("-L mdt -S -180K"), 5);
    assert_eq!(count("-S -180K -type d"), 3);
    assert_eq!(count("-L mdt -type d"), 3);
    assert_eq!(count("-S 1M"), 3);
    assert_eq!(count("-S +1M -type f"), 2);
    assert_eq!(count("! -L mdt -type f"), 2);
    assert_eq!(count("-L mdt -S +64k -S -1M -type f"), 0);
    assert_eq!(count("-E 64k -type f"), 1);
    assert_eq!(count("-L raid0"), 8);
    let bare = folder("");
    assert!(fits("-S -180K -type d", &bare) && !fits("-L raid0", &bare));
    assert!(fits("! -L mdt", &bare));
}

#[test]
fn pools_are_found_by_components_that_have_objects() {
    let (fast, none) = (file("-p fast -c 2"), file("-c 2"));
    assert!(fits("--pool fast", &fast) && !fits("--pool fast", &none));
    assert!(fits("! --pool fast", &none) && !fits("--pool slow", &fast));
    assert!(fits("--pool *", &fast) && !fits("--pool *", &none));
    let later = file("-E 1M -p a -E -1 -p b");
    assert!(fits("--pool a", &later) && !fits("--pool b", &later));
    let nowhere = Test::read("pool", "", "--pool").unwrap();
    let mut tests = Tests::default();
    tests.add(nowhere, false);
    assert!(tests.fit(&none).unwrap() && tests.fit(&folder("")).unwrap());
    assert!(!tests.fit(&fast).unwrap());
}

#[test]
fn one_component_must_have_all_that_is_asked_of_components() {
    let made = file("-E 1M -c 1 -E 16M -c 2 -E -1 -c 4");
    assert!(fits("--component-count 3", &made) && fits("--comp-count +2", &made));
    assert!(fits("--component-start 1M -E 16M", &made));
    assert!(!fits("--component-start 0 -E 16M", &made));
    assert!(fits("--component-flags init -E 1M", &made));
    assert!(!fits("--component-flags init -E 16M", &made));
    assert!(fits("--component-flags ^init -E eof", &made));
    assert!(fits("-E +16M", &made) && fits("-c 1", &made));
    let plain = file("-o 1,3");
    assert!(fits("--component-count 0", &plain) && fits("--component-end eof", &plain));
    assert!(fits("--ost 3", &plain) && fits("-O lustre-OST0001_UUID,7", &plain));
    assert!(fits("-o OST0003", &plain) && fits("-i 0-1", &plain) && !fits("-O 2", &plain));
    assert!(fits("-c -3", &plain) && fits("-m 0", &plain) && !fits("-m 1-3", &plain));
}

#[test]
fn extended_attributes_are_matched_as_a_whole() {
    let made = file("-c 2");
    assert!(fits("-xattr user.job=202310.*", &made) && fits("-xattr user\\..*", &made));
    assert!(!fits("-xattr user.jo", &made) && !fits("-xattr user.job=202310", &made));
    assert!(fits("! -xattr trusted.* -xattr user.x=.", &made));
    assert!(!fits("-xattr user.job=1.* -xattr user.job", &made));
    let fault = Test::read("xattr", "[", "--xattr").unwrap_err();
    assert_eq!(fault.text, "lfs find: bad regular expression '['");
}

#[test]
fn cheap_tests_come_first() {
    let made = file("-c 2");
    assert!(!fits("-c 2 -name x*", &made));
    assert_eq!(made.asked.get(), 0);
    assert!(fits("-c 2 -name f -type f", &made));
    assert_eq!(made.asked.get(), 1);
}

/// Exit codes as `lfs.c` gives them; some it forgets.
#[test]
fn bad_values_are_refused_with_lustres_exit_codes() {
    for (line, code, text) in [
        ("-type x", 4, "bad type 'x'"),
        ("-c x", 1, "bad stripe_count 'x'"),
        ("-S x", 22, "bad stripe_size 'x'"),
        ("-s 1x", 22, "bad file size '1x'"),
        ("-b x", 22, "bad blocks 'x'"),
        ("--component-count x", 0, "bad component count 'x'"),
        ("--component-flags x", 0, "bad component flags 'x'"),
        ("--component-end x", 0, "bad component end 'x'"),
        ("-mtime x", 1, "bad mtime 'x'"),
        ("-maxdepth abc", 1, "bad maxdepth 'abc'"),
        ("-type fd", 4, "bad type 'fd'"),
        ("-attrs Bogus", 1, "bad attribute name 'Bogus'"),
        ("-user nosuchuser", 1, "invalid username/UID 'nosuchuser'"),
        ("-perm 9", 1, "invalid mode '9'"),
        ("-threads 0", 1, "bad thread count '0'"),
        ("-skip 100", 1, "invalid skip percentage '100'"),
        ("-L bogus", 22, "layout 'bogus' is unknown: use mdt, raid0 or released"),
        ("-maxdepth 1 -mindepth 2", 4, "mindepth 2 > maxdepth 1 (try 'lfs find --help')"),
        ("-newerxy /", 4, "unrecognized option '-newerxy'"),
        ("-newermx /", 4, "unrecognized option '-newermx'"),
        ("-newermt x", 22, "bad time 'x'"),
        ("-N 2", 95, "option '-N' is not supported by Sheen yet"),
    ] {
        let words: Vec<std::ffi::OsString> =
            format!("/x {line}").split_whitespace().map(Into::into).collect();
        let fault = GRAMMAR.read(&newer_apart(&words)).and_then(Find::read).unwrap_err();
        assert_eq!((fault.code, fault.text), (code, format!("lfs find: {text}")), "{line}");
    }
}

#[test]
fn names_are_matched_as_shells_do() {
    for (pattern, name, expected) in [
        ("*", "anything", true),
        ("*.mpg", "a.mpg", true),
        ("*.mpg", "a.mp", false),
        ("f?o", "foo", true),
        ("f?o", "fo", false),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("[]x]", "]", true),
        ("[x", "[x", true),
        ("a\\*b", "a*b", true),
        ("a\\*b", "aab", false),
        ("*a*b*", "xxaxxbxx", true),
    ] {
        assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
    }
}

#[test]
fn modes_are_read_in_letters() {
    assert_eq!(symbolic("u=rwx,g=rx,o=rx"), Some(0o755));
    assert_eq!(symbolic("a+r"), Some(0o444));
    assert_eq!(symbolic("+x,o-x"), Some(0o110));
    assert_eq!(symbolic("u+s"), Some(0o4000));
    assert_eq!((symbolic("x"), symbolic("u+q"), symbolic("z+r")), (None, None, None));
}

#[test]
fn stripes_are_asked_of_directories_alone() {
    let (folder, file) = (folder(""), file("-c 1"));
    for line in
        ["-T 2", "--mdt-count +1", "-H crush", "--mdt-hash crush,fnv_1a_64", "! -H all_char"]
    {
        assert!(fits(line, &folder), "{line}");
        assert!(!fits(line, &file), "{line}");
    }
    assert!(!fits("-T 3", &folder) && !fits("! -T 2", &folder) && !fits("-H fnv_1a_64", &folder));
    assert_eq!(file.asked.get(), 0);
}
