//! `lfs getsom`: what the MDT knows of a file's size without asking OSTs.

use std::path::PathBuf;

use clap::Args;
use sheen_wire::md::SomAttrs;

use super::attributes;
use crate::output::{Fault, line, shown_path};

/// Options of `getsom`.
#[derive(Args)]
pub(super) struct GetSom {
    /// Print the size only
    #[arg(short, overrides_with_all = ["blocks", "flags"])]
    size: bool,
    /// Print the blocks only
    #[arg(short, overrides_with_all = ["size", "flags"])]
    blocks: bool,
    /// Print the flags only
    #[arg(short, overrides_with_all = ["size", "blocks"])]
    flags: bool,
    /// File
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

pub(super) fn run(options: &GetSom) -> Result<(), Fault> {
    let path = shown_path(&options.path);
    let som = attributes::som(&options.path).map_err(|errno| {
        let text = format!("{path} failed to get som xattr: {errno} ({})", errno.0);
        Fault::new(errno, text)
    })?;
    line(text(options, &som));
    Ok(())
}

fn text(options: &GetSom, som: &SomAttrs) -> String {
    let SomAttrs { valid, size, blocks, .. } = som;
    match (options.size, options.blocks, options.flags) {
        (true, ..) => size.to_string(),
        (_, true, _) => blocks.to_string(),
        (.., true) => format!("{valid:x}"),
        _ => {
            let path = shown_path(&options.path);
            format!("file: {path} size: {size} blocks: {blocks} flags: {valid:x}")
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{ByteOrder, Reader, Wire};

    use super::{GetSom, SomAttrs, text};

    /// As the recording n5-lsom has it.
    #[test]
    fn the_size_on_the_mdt_is_shown_as_lustre_shows_it() {
        let bytes: Vec<u8> = [4_u64, 12345, 32].into_iter().flat_map(u64::to_le_bytes).collect();
        let som = SomAttrs::decode(&mut Reader::new(&bytes.into(), ByteOrder::Little)).unwrap();
        let options = |size, blocks, flags| GetSom { size, blocks, flags, path: "f".into() };
        assert_eq!(
            text(&options(false, false, false), &som),
            "file: f size: 12345 blocks: 32 flags: 4"
        );
        assert_eq!(text(&options(true, false, false), &som), "12345");
        assert_eq!(text(&options(false, true, false), &som), "32");
        assert_eq!(text(&options(false, false, true), &som), "4");
    }
}
