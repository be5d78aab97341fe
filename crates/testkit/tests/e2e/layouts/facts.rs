//! What `lfs getstripe` shows of a file, read back; bytes at places of a file, written and compared.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sheen_testkit::cluster::Cluster;
use sheen_workloads::bytes::{BLOCK, fill, read_full};
use sheen_workloads::{Context, Outcome, ensure};

/// Behind every byte of a file.
pub(super) const END: u64 = u64::MAX;
pub(super) const MIB: u64 = 1 << 20;

/// A component, or a plain layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) init: bool,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Stripes; -1 for all OSTs, while there are no objects.
    pub(super) count: i64,
    pub(super) size: u64,
    pub(super) pattern: String,
    /// The OST and the FID of each object, in order.
    pub(super) objects: Vec<(u64, String)>,
}

impl Part {
    /// How many objects lie on `ost`.
    pub(super) fn on(&self, ost: u64) -> usize {
        self.objects.iter().filter(|(at, _)| *at == ost).count()
    }

    /// All objects are other ones, also those of one OST.
    pub(super) fn must_be_distinct(&self) -> Outcome {
        let distinct: BTreeSet<_> = self.objects.iter().collect();
        ensure(distinct.len() == self.objects.len(), || format!("one object twice: {self:?}"))?;
        ensure(self.objects.len() as i64 == self.count, || {
            format!("{} objects of {}", self.objects.len(), self.count)
        })
    }
}

/// `sheen WORDS`, where `@` stands for the mount.
pub(super) fn run(cluster: &Cluster, line: &str) -> Outcome<String> {
    let words = words(cluster, line);
    cluster.must(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The same, for what must fail: its exit code and what it said.
pub(super) fn refused(cluster: &Cluster, line: &str) -> Outcome<(i32, String)> {
    let words = words(cluster, line);
    let finished = cluster.run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    ensure(!finished.status.success(), || format!("{line}: was not refused"))?;
    Ok((finished.status.code().unwrap_or(-1), finished.output))
}

fn words(cluster: &Cluster, line: &str) -> Vec<String> {
    let mount = format!("{}/", cluster.mnt().display());
    line.split_whitespace().map(|word| word.replace('@', &mount)).collect()
}

/// The layout of a file of the mount.
pub(super) fn parts(cluster: &Cluster, name: &str) -> Outcome<Vec<Part>> {
    read(&run(cluster, &format!("lfs getstripe -y @{name}"))?)
}

/// Start and end (in MiB; [`END`] as it is), pattern and stripe count of each component.
pub(super) fn shape(parts: &[Part]) -> Vec<(u64, u64, &str, i64)> {
    let mib = |at: u64| if at == END { END } else { at / MIB };
    let shape = |part: &Part| (mib(part.start), mib(part.end), part.count);
    let all = parts.iter().map(|part| (shape(part), part.pattern.as_str()));
    all.map(|((start, end, count), pattern)| (start, end, pattern, count)).collect()
}

fn read(text: &str) -> Outcome<Vec<Part>> {
    let whole = Part { init: true, end: END, ..Part::default() };
    let (mut parts, mut ost) = (Vec::new(), 0);
    if !text.contains("components:") {
        parts.push(whole.clone());
    }
    for line in text.lines() {
        let Some((label, value)) = line.trim_start_matches([' ', '-']).split_once(':') else {
            continue;
        };
        let value = value.trim();
        let number = || match value {
            "EOF" => Ok(END),
            value => value.parse::<u64>().context(line),
        };
        if label == "lcme_id" {
            parts.push(whole.clone());
        }
        let Some(part) = parts.last_mut() else { continue };
        match label {
            "lcme_flags" => part.init = value.split(',').any(|flag| flag == "init"),
            "lcme_extent.e_start" => part.start = number()?,
            "lcme_extent.e_end" => part.end = number()?,
            "lmm_stripe_count" => part.count = value.parse().context(line)?,
            "lmm_stripe_size" => part.size = number()?,
            "lmm_pattern" => value.clone_into(&mut part.pattern),
            "l_ost_idx" => ost = number()?,
            "l_fid" => part.objects.push((ost, value.to_owned())),
            _ => {}
        }
    }
    Ok(parts)
}

/// Writes `length` bytes at `offset` that [`compare`] knows again.
pub(super) fn write(file: &File, seed: u64, offset: u64, length: u64) -> Outcome {
    for at in (offset..offset + length).step_by(BLOCK) {
        let mut block = vec![0; (offset + length - at).min(BLOCK as u64) as usize];
        fill(&mut block, seed, at);
        file.write_all_at(&block, at).context(format!("write {} bytes at {at}", block.len()))?;
    }
    Ok(())
}

/// Opens a file that is there, for reading and writing.
pub(super) fn open(path: &Path) -> Outcome<File> {
    OpenOptions::new().read(true).write(true).open(path).context(path.display())
}

/// The whole file is `size` bytes long and holds what was written to `spots` (offset and length), and
/// zeros elsewhere.
pub(super) fn compare(path: &Path, seed: u64, size: u64, spots: &[(u64, u64)]) -> Outcome {
    let mut file = File::open(path).context(path.display())?;
    let (mut block, mut wanted, mut at) = (vec![0; BLOCK], vec![0; BLOCK], 0);
    loop {
        let count = read_full(&mut file, &mut block).context(path.display())?;
        wanted.fill(0);
        for (offset, length) in spots {
            let (from, to) = (at.max(*offset), (at + count as u64).min(offset + length));
            if from < to {
                fill(&mut wanted[(from - at) as usize..(to - at) as usize], seed, from);
            }
        }
        // As a whole first: byte by byte takes a hundred times as long.
        if block[..count] != wanted[..count] {
            let wrong = block[..count].iter().zip(&wanted).position(|(is, wanted)| is != wanted);
            let place = at + wrong.unwrap_or(0) as u64;
            return Err(format!("{}: another byte at {place}", path.display()));
        }
        at += count as u64;
        if count < BLOCK {
            return ensure(at == size, || format!("{}: {at} bytes", path.display()));
        }
    }
}

#[test]
fn layouts_are_read_from_their_text() {
    let plain = "lmm_stripe_count:  2\nlmm_pattern:       raid0,overstriped\nlmm_objects:\n      \
        - l_ost_idx: 2\n        l_fid:     0x2:0x4:0x0\n      - l_ost_idx: 2\n        \
        l_fid:     0x2:0x5:0x0\n";
    let plain = read(plain).unwrap();
    assert_eq!(shape(&plain), [(0, END, "raid0,overstriped", 2)]);
    assert_eq!((plain[0].on(2), plain[0].must_be_distinct()), (2, Ok(())));
    let composite = "components:\n  - lcme_id:             1\n    lcme_flags:          init\n    \
        lcme_extent.e_start: 0\n    lcme_extent.e_end:   1048576\n    sub_layout:\n      \
        lmm_stripe_count:  0\n      lmm_pattern:       mdt\n  - lcme_id:             2\n    \
        lcme_flags:          0\n    lcme_extent.e_start: 1048576\n    lcme_extent.e_end:   EOF\n";
    let composite = read(composite).unwrap();
    assert_eq!(shape(&composite), [(0, 1, "mdt", 0), (1, END, "", 0)]);
    assert_eq!([composite[0].init, composite[1].init], [true, false]);
}
