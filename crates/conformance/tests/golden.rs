//! Every message of the golden captures is read into types and comes out as it went in.

use std::path::PathBuf;

use sheen_conformance::golden;

/// Where the captures are; `None` if they are allowed to be absent and are.
fn captures() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    let path = std::env::var_os("SHEEN_CAPTURES").map_or_else(|| default.into(), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    let allowed = std::env::var_os("SHEEN_NO_CAPTURES").is_some_and(|value| value == "1");
    assert!(
        allowed,
        "no captures in {}; set SHEEN_CAPTURES or SHEEN_NO_CAPTURES=1",
        path.display()
    );
    eprintln!("skipped: no captures in {}", path.display());
    None
}

#[test]
fn golden_captures_come_out_as_they_went_in() {
    let Some(directory) = captures() else { return };
    let mut out = Vec::new();
    let clean = golden::run(&directory, &mut out).expect("captures are readable");
    let text = String::from_utf8_lossy(&out);
    println!("{text}");
    assert!(clean, "{text}");
}
