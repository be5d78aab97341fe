//! Writes inputs for a fuzzer to begin with: `cargo run -p sheen-hostile --example corpus -- DIR [COUNT]`. They are
//! made as those of `tests/seeds.rs` are.

use std::path::Path;

use sheen_vnet::SeededRandom;

/// Bytes of an input, at most: enough for all decisions of a sequence of requests.
const BYTES_MAX: u64 = 8_000;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder to write to");
    let count = arguments.next().map_or(40, |count| count.parse().expect("a number of inputs"));
    std::fs::create_dir_all(&folder)?;
    for seed in 0..count {
        let random = SeededRandom::new(seed);
        let bytes: Vec<u8> = (0..random.below(BYTES_MAX)).map(|_| random.draw() as u8).collect();
        std::fs::write(Path::new(&folder).join(format!("seed-{seed}")), bytes)?;
    }
    Ok(())
}
