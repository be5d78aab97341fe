//! Every message of the golden captures is read into types and comes out as it went in.

use std::path::Path;

use sheen_conformance::dump::{Detail, NOT_TYPED, dump_file};
use sheen_conformance::golden;

/// How many captures there are.
const CAPTURES: usize = 66;
/// And of a Lustre under faults.
const OF_FAULTS: usize = 12;

#[test]
fn every_capture_comes_out_as_it_went_in() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    come_out_as_they_went_in(&directory, CAPTURES);
}

#[test]
fn every_capture_of_faults_comes_out_as_it_went_in() {
    let Some(directory) = sheen_skip::needs_captures_of_faults() else { return };
    come_out_as_they_went_in(&directory, OF_FAULTS);
}

fn come_out_as_they_went_in(directory: &Path, captures: usize) {
    let mut out = Vec::new();
    let sum = golden::run(&golden::files(directory), &mut out).expect("captures are readable");
    let text = String::from_utf8_lossy(&out);
    println!("{text}");
    assert!(sum.unclean.is_empty(), "{:?}:\n{text}", sum.unclean);
    assert!(sum.captures >= captures, "only {} captures in {}", sum.captures, directory.display());
}

#[test]
fn a_dump_names_what_happened() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let dump = |name: &str, detail| {
        let mut out = Vec::new();
        let path = directory.join(format!("{name}.pcap"));
        dump_file(&path, detail, &mut out).expect("a capture");
        String::from_utf8_lossy(&out).into_owned()
    };
    let mount = dump("a-mount-umount", Detail::Line);
    let expected = [
        "ACCEPTOR target=10.77.0.11@tcp",
        "HELLO CONTROL",
        "MGS_REQUEST MGS_CONNECT xid=",
        "LLOG_ORIGIN_HANDLE_CREATE xid=",
        "name=\"lustre-client\"",
        "MDS_GET_ROOT reply xid=",
        "fid=[0x200000007:0x1:0x0]",
        "OST_STATFS reply xid=",
        "MDS_READPAGE bulk",
        "OST_DISCONNECT reply",
    ];
    for text in expected {
        assert!(mount.contains(text), "{text}");
    }
    let rename = dump("b2-rename-link-symlink", Detail::Line);
    for text in ["MDS_REINT_RENAME xid=", "MDS_REINT_LINK xid=", "MDS_REINT_CREATE_SYM xid="] {
        assert!(rename.contains(text), "{text}");
    }
    let verbose = dump("b2-rename-link-symlink", Detail::Fields);
    assert!(verbose.contains("ptlrpc_body: PtlrpcBody {"));
    assert!(verbose.contains("RecRename {"));
}

/// Looks at lines and forgets them.
#[derive(Default)]
struct Looker {
    line: Vec<u8>,
    lines: usize,
    faults: Vec<String>,
}

impl std::io::Write for Looker {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Looker {
    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let fault = [NOT_TYPED, "not understood"];
        if fault.iter().any(|words| line.contains(words)) && !line.ends_with("(cut)") {
            self.faults.push(line.chars().take(200).collect());
        }
        self.lines += 1;
        self.line.clear();
    }
}

#[test]
fn a_verbose_dump_shows_all_fields_of_everything() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    shows_all_fields(&directory);
}

#[test]
fn a_verbose_dump_shows_all_fields_of_everything_under_faults() {
    let Some(directory) = sheen_skip::needs_captures_of_faults() else { return };
    shows_all_fields(&directory);
}

fn shows_all_fields(directory: &Path) {
    for path in golden::files(directory) {
        let mut looker = Looker::default();
        dump_file(&path, Detail::Fields, &mut looker).expect("a capture");
        assert!(looker.lines > 0, "{}", path.display());
        assert_eq!(looker.faults, [""; 0], "{}", path.display());
    }
}

#[test]
fn what_is_no_capture_gives_one_line() {
    let error = dump_file(
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").as_ref(),
        Detail::Line,
        &mut Vec::new(),
    );
    let error = error.expect_err("a manifest is no capture");
    assert!(error.ends_with("not a capture file: neither pcap nor pcapng"), "{error}");
    assert!(!error.contains('\n'));
}

#[test]
fn damaged_captures_do_no_harm() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let file = std::fs::read(directory.join("b2-rename-link-symlink.pcap")).expect("a capture");
    let mut noticed = 0;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..40 {
        let mut damaged = file.clone();
        for _ in 0..200 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            // The file's own header stays, or it would be no capture.
            let at = 24 + (state >> 33) as usize % (damaged.len() - 24);
            damaged[at] = (state >> 25) as u8;
        }
        damaged.truncate(file.len() - (state >> 40) as usize % file.len() / 2);
        noticed += usize::from(!golden::check(&damaged.into()).is_ok_and(|it| it.is_clean()));
    }
    assert!(noticed >= 20, "damage was noticed in {noticed} of 40 files only");
}
