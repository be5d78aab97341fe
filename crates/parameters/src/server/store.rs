//! `osd-sheen.*`: a target's store, whose space is shown under the target's name as well.

use std::fmt::Write as _;
use std::sync::Arc;

use sheen_assembly::{Role, TargetLabel};
use sheen_control::Tree;
use sheen_oss::Transfers;
use sheen_store::{Integrity, StoreSpace};
use sheen_types::limits::NAME_BYTES_MAX;

use super::jobs::magnitude;
use crate::HostedTarget;
use crate::text::Since;
use crate::values;

/// What our stores are called where Lustre names ldiskfs or zfs.
pub(super) const KIND: &str = "sheen";
/// Bytes of the smallest unit of space.
const BLOCK_BYTES: u64 = 1 << sheen_oss::BLOCK_BITS;
/// Columns of a time's name in `brw_stats`.
const TIME_WIDTH: usize = 25;

/// Adds a target's space below `root`, and its store.
pub(super) fn add(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    let osd = format!("osd-{KIND}.{}", one.served.target.name());
    for root in [root, &osd] {
        add_space(tree, root, one);
        tree.add(&format!("{root}.fstype"), || KIND.to_owned());
    }
    let directory = one.directory.display().to_string();
    tree.add(&format!("{osd}.mntdev"), move || directory.clone());
    let uuid = format!("{}-osd_UUID", one.served.target.name());
    tree.add(&format!("{osd}.uuid"), move || uuid.clone());
    add_sizes(tree, &osd, one);
    super::add_sync(tree, &format!("{osd}.force_sync"), one);
    add_integrity(tree, &osd, one);
    if matches!(one.served.role, Role::Mdt(_)) {
        add_layers(tree, one);
    }
    if !matches!(one.served.role, Role::Mgs(_)) {
        add_transfers(tree, &osd, one);
    }
}

/// Whether blocks have checksums, and what was compared. Lustre has no such names.
fn add_integrity(tree: &Tree, osd: &str, one: &Arc<HostedTarget>) {
    let (reader, writer, counts) = (Arc::clone(one), Arc::clone(one), Arc::clone(one));
    tree.add_writable(
        &format!("{osd}.block_checksums"),
        move || u8::from(reader.served.target.store().has_block_checksums()).to_string(),
        move |text| {
            let keep = values::switch(text)?;
            writer.served.target.store().keep_block_checksums(keep).map_err(|error| error.errno())
        },
    );
    tree.add(&format!("{osd}.integrity"), move || {
        let Integrity { blocks_checked, blocks_failed, files_failed, blocks_unknown } =
            counts.served.target.store().integrity();
        format!(
            "blocks_checked: {blocks_checked}\nblocks_failed: {blocks_failed}\n\
             blocks_unknown: {blocks_unknown}\nfiles_failed: {files_failed}\n"
        )
    });
}

fn add_space(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    type Read = fn(&StoreSpace) -> u64;
    let shown: [(&str, Read); 6] = [
        ("kbytestotal", |space| space.total >> 10),
        ("kbytesfree", |space| space.free >> 10),
        ("kbytesavail", |space| space.available >> 10),
        ("filestotal", |space| space.objects),
        ("filesfree", |space| space.objects_free),
        ("blocksize", |_| BLOCK_BYTES),
    ];
    for (leaf, read) in shown {
        let one = Arc::clone(one);
        tree.add(&format!("{root}.{leaf}"), move || {
            let space = one.served.target.store().space();
            space.map_or_else(|error| error.to_string(), |space| read(&space).to_string())
        });
    }
}

/// Adds what the layers above an MDT's store show of it: `lod.*` its space, and UUIDs (`lod.*`, `mdd.*`).
fn add_layers(tree: &Tree, one: &Arc<HostedTarget>) {
    let (name, lod) =
        (one.served.target.name(), format!("lod.{}-mdtlov", one.served.target.name()));
    add_space(tree, &lod, one);
    add_sizes(tree, &lod, one);
    let uuid = format!("{name}-mdtlov_UUID");
    for leaf in ["uuid", "desc_uuid"] {
        let uuid = uuid.clone();
        tree.add(&format!("{lod}.{leaf}"), move || uuid.clone());
    }
    if let TargetLabel::Target(name) = &one.served.kind {
        let uuid = format!("{}-MDD{:04x}_UUID", name.fsname, name.index);
        tree.add(&format!("mdd.{name}.uuid"), move || uuid.clone());
    }
}

/// How long names and objects may be.
fn add_sizes(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    tree.add(&format!("{root}.namelen_max"), || NAME_BYTES_MAX.to_string());
    let store = Arc::clone(one);
    tree.add(&format!("{root}.maxbytes"), move || {
        store.served.target.store().object_bytes_max().to_string()
    });
}

/// How reads and writes reached the store. A write of any text clears it.
fn add_transfers(tree: &Tree, osd: &str, one: &Arc<HostedTarget>) {
    let since = Arc::new(Since::now());
    let (reader, writer, restart) = (Arc::clone(one), Arc::clone(one), Arc::clone(&since));
    tree.add_writable(
        &format!("{osd}.brw_stats"),
        move || since.times(TIME_WIDTH) + &histograms(&transfers(&reader)),
        move |_| {
            match &writer.served.role {
                Role::Ost(ost) => ost.clear_transfers(),
                Role::Mdt(mdt) => mdt.clear_transfers(),
                Role::Mgs(_) => {}
            }
            restart.restart();
            Ok(())
        },
    );
}

/// How reads and writes reached a target's store.
pub(crate) fn transfers(one: &HostedTarget) -> (Transfers, Transfers) {
    match &one.served.role {
        Role::Ost(ost) => ost.transfers(),
        Role::Mdt(mdt) => mdt.transfers(),
        Role::Mgs(_) => Default::default(),
    }
}

/// One histogram of `brw_stats`.
pub(crate) struct Section {
    /// Its name and the unit of its counts.
    name: &'static str,
    unit: &'static str,
    /// Whether classes are powers of two.
    is_scaled: bool,
    /// `None` for what we cannot know: where the local file system puts blocks is its own affair.
    counts: Option<fn(&Transfers) -> &[u64; 32]>,
}

/// In Lustre's order.
const SECTIONS: [Section; 8] = [
    section("pages per bulk r/w", "rpcs", true, Some(|it| &it.pages)),
    section("discontiguous pages", "rpcs", false, Some(|it| &it.gaps)),
    section("discontiguous blocks", "rpcs", false, None),
    section("disk fragmented I/Os", "ios", false, Some(|it| &it.accesses)),
    section("disk I/Os in flight", "ios", false, Some(|it| &it.in_flight)),
    section("I/O time (1/1000s)", "ios", true, Some(|it| &it.milliseconds)),
    section("disk I/O size", "ios", true, Some(|it| &it.bytes)),
    section("block maps msec", "maps", true, None),
];

const fn section(
    name: &'static str,
    unit: &'static str,
    is_scaled: bool,
    counts: Option<fn(&Transfers) -> &[u64; 32]>,
) -> Section {
    Section { name, unit, is_scaled, counts }
}

fn histograms((reads, writes): &(Transfers, Transfers)) -> String {
    let mut text = String::new();
    for Section { name, unit, is_scaled, counts } in &SECTIONS {
        let _ = write!(
            text,
            "\n{:>26} read      |     write\n{name:<22} {unit:<5} % cum % |  {unit:<11} % cum %\n",
            " "
        );
        if let Some(counts) = counts {
            classes(&mut text, counts(reads), counts(writes), *is_scaled);
        }
    }
    text
}

/// A line for each class from the first that has counts to the last.
fn classes(text: &mut String, reads: &[u64; 32], writes: &[u64; 32], is_scaled: bool) {
    let total = |counts: &[u64; 32]| counts.iter().sum::<u64>();
    let (all_reads, all_writes) = (total(reads), total(writes));
    let percent = |part: u64, all: u64| (part * 100).checked_div(all).unwrap_or(0);
    let (mut read_so_far, mut written_so_far) = (0, 0);
    for (class, (read, written)) in reads.iter().zip(writes).enumerate() {
        if read_so_far == all_reads && written_so_far == all_writes {
            break;
        }
        read_so_far += read;
        written_so_far += written;
        if read_so_far == 0 && written_so_far == 0 {
            continue;
        }
        let name = if is_scaled { scaled(class) } else { class.to_string() };
        let _ = writeln!(
            text,
            "{name}:\t\t{read:>10} {:>3} {:>3}   | {written:>4} {:>3} {:>3}",
            percent(*read, all_reads),
            percent(read_so_far, all_reads),
            percent(*written, all_writes),
            percent(written_so_far, all_writes),
        );
    }
}

/// Here Lustre knows no letter behind M.
fn scaled(class: usize) -> String {
    if class < 30 { magnitude(class) } else { format!("{}M", 1u64 << (class - 20)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_have_lustres_shape() {
        let (mut reads, mut writes) = (Transfers::default(), Transfers::default());
        (reads.bytes[12], reads.bytes[20], writes.bytes[14]) = (1, 3, 1);
        (reads.gaps[0], writes.gaps[1]) = (4, 1);
        let text = histograms(&(reads, writes));
        let expected = "
                           read      |     write
pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %

                           read      |     write
discontiguous pages    rpcs  % cum % |  rpcs        % cum %
0:\t\t         4 100 100   |    0   0   0
1:\t\t         0   0 100   |    1 100 100
";
        assert_eq!(text[..expected.len()], *expected);
        let sizes = text.split("disk I/O size").nth(1).unwrap();
        let lines: Vec<_> = sizes.lines().skip(1).take_while(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "4K:\t\t         1  25  25   |    0   0   0");
        assert_eq!(lines[2], "16K:\t\t         0   0  25   |    1 100 100");
        assert_eq!(lines[8], "1M:\t\t         3  75 100   |    0   0 100");
        assert_eq!(lines.len(), 9);
        assert_eq!(text.matches("% cum % |").count(), 8);
        assert_eq!((scaled(29), scaled(31)), ("512M".to_owned(), "2048M".to_owned()));
    }
}
