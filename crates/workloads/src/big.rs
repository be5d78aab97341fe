//! One large file, whole, sparse and cut.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::bytes::{BLOCK, fill, read_full};
use crate::{Context, Outcome, Size, ensure};

/// How large the file of each size is, in bytes.
pub fn length(size: Size) -> u64 {
    size.of(5 << 20, 256 << 20, 4 << 30)
}

/// Writes, reads and cuts a file of `length` bytes, and a sparse one of the same length.
pub fn run(top: &Path, length: u64) -> Outcome {
    let folder = crate::folder(top, "big")?;
    let whole = folder.join("whole");
    write(&whole, 1, length)?;
    verify(&whole, 1, length)?;
    overwrite(&whole, length)?;
    cut(&whole, length)?;
    sparse(&folder.join("sparse"), length)?;
    grown(&folder.join("grown"))
}

/// Writes the content of `seed` from the beginning, and syncs it.
pub fn write(path: &Path, seed: u64, length: u64) -> Outcome {
    let mut file = File::create_new(path).context(path.display())?;
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < length {
        let part = usize::try_from(length - at).unwrap_or(BLOCK).min(BLOCK);
        fill(&mut block[..part], seed, at);
        file.write_all(&block[..part]).context(format_args!("{}: at {at}", path.display()))?;
        at += part as u64;
    }
    file.sync_all().context(path.display())?;
    let size = file.metadata().context(path.display())?.len();
    ensure(size == length, || format!("{}: {size} bytes, wrote {length}", path.display()))
}

/// Reads the file and compares every byte with the content of `seed`.
pub fn verify(path: &Path, seed: u64, length: u64) -> Outcome {
    let mut file = File::open(path).context(path.display())?;
    let (mut found, mut written) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    loop {
        let part = read_full(&mut file, &mut found)
            .context(format_args!("{}: at {at}", path.display()))?;
        fill(&mut written[..part], seed, at);
        if found[..part] != written[..part] {
            let right =
                found.iter().zip(&written).take_while(|(found, written)| found == written).count();
            return Err(format!("{}: wrong byte at {}", path.display(), at + right as u64));
        }
        at += part as u64;
        if part < BLOCK {
            return ensure(at == length, || {
                format!("{}: read {at} bytes of {length}", path.display())
            });
        }
    }
}

/// Overwrites pieces that lie across pages and stripes, then reads them and their surroundings.
fn overwrite(path: &Path, length: u64) -> Outcome {
    let file = OpenOptions::new().read(true).write(true).open(path).context(path.display())?;
    for start in [1, 4095, (BLOCK - 3) as u64, length / 2 + 1] {
        let piece = [0xa5; 5000];
        file.write_all_at(&piece, start).context(path.display())?;
        must_hold(&file, start, &piece, path)?;
        let aligned = start & !7;
        let mut before = vec![0; 5016];
        fill(&mut before, 1, aligned);
        let skipped = usize::try_from(start - aligned).expect("below eight");
        let own = &before[skipped..skipped + 5000];
        file.write_all_at(own, start).context(path.display())?;
        must_hold(&file, aligned, &before, path)?;
    }
    Ok(())
}

/// Cuts in the middle of a page, grows again, and sees zeros where the content was.
fn cut(path: &Path, length: u64) -> Outcome {
    let file = OpenOptions::new().read(true).write(true).open(path).context(path.display())?;
    let middle = (length / 2) & !7 | 1;
    file.set_len(middle).context(path.display())?;
    let size = file.metadata().context(path.display())?.len();
    ensure(size == middle, || format!("{}: cut to {middle}, is {size}", path.display()))?;
    file.set_len(length).context(path.display())?;
    let mut kept = vec![0; 4096];
    fill(&mut kept, 1, middle - 1 - 4088);
    must_hold(&file, middle - 1 - 4088, &kept[..4089], path)?;
    must_hold(&file, middle, &vec![0; 100_000], path)?;
    must_hold(&file, length - 100, &[0; 100], path)?;
    let mut past = [0; 10];
    let count = file.read_at(&mut past, length).context(path.display())?;
    ensure(count == 0, || format!("{}: {count} bytes past the end", path.display()))
}

/// Islands in a sea of zeros: all holes read as zeros and take no space.
fn sparse(path: &Path, length: u64) -> Outcome {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = file.context(path.display())?;
    let island = crate::bytes::content(3, 10_000);
    let places = [length / 4 + 77, length / 2, length - 10_000];
    for place in places {
        file.write_all_at(&island, place).context(path.display())?;
    }
    file.sync_all().context(path.display())?;
    for place in places {
        must_hold(&file, place, &island, path)?;
        must_hold(&file, place - 50_000, &[0; 50_000], path)?;
    }
    must_hold(&file, 0, &[0; 50_000], path)?;
    let meta = file.metadata().context(path.display())?;
    ensure(meta.len() == length, || format!("{}: {} bytes", path.display(), meta.len()))?;
    let taken = meta.blocks() * 512;
    ensure((30_000..2 << 20).contains(&taken), || {
        format!("{}: three islands take {taken} bytes", path.display())
    })
}

/// Grown by truncation alone, far past what any disk holds.
fn grown(path: &Path) -> Outcome {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = file.context(path.display())?;
    let length = 1 << 40;
    file.set_len(length).context(path.display())?;
    must_hold(&file, length - 4096, &[0; 4096], path)?;
    let size = path.metadata().context(path.display())?.len();
    ensure(size == length, || format!("{}: {size} bytes", path.display()))?;
    // Who reads the tree later would read all these zeros.
    std::fs::remove_file(path).context(path.display())
}

fn must_hold(file: &File, at: u64, written: &[u8], path: &Path) -> Outcome {
    let mut found = vec![0; written.len()];
    file.read_exact_at(&mut found, at).context(format_args!("{}: at {at}", path.display()))?;
    ensure(found == written, || {
        format!("{}: wrong bytes in {} from {at}", path.display(), written.len())
    })
}
