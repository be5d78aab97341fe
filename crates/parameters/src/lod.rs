//! The settings of layouts that an MDT makes (Lustre: `lod.*`, and `mdd.*` of files that are
//! appended to).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheen_control::Tree;
use sheen_mds::{DirectorySettings, LayoutSettings, Mdt};
use sheen_types::{Errno, TargetName};
use sheen_wire::lmv::LmvHash;
use sheen_wire::lov::PoolName;

use super::{pool_leaves, pools_of, values};

/// Gives an MDT the pools of OSTs in its configuration, and shows them.
pub struct MdtPools {
    mdt: Arc<Mdt>,
    fsname: String,
    shown: Mutex<BTreeMap<String, Vec<String>>>,
}

impl MdtPools {
    /// Takes the pools of the configuration as it is now.
    pub(super) fn set(&self, pools: &BTreeMap<String, Vec<u16>>) {
        let named = |(name, osts): (&String, &Vec<u16>)| Some((PoolName::new(name)?, osts.clone()));
        self.mdt.set_pools(pools.iter().filter_map(named).collect());
        *self.shown.lock() = pools_of(&self.fsname, pools);
    }
}

type Show = fn(&LayoutSettings) -> String;
type Change = fn(&mut LayoutSettings, &str) -> Result<(), Errno>;

/// Names, and what is shown and changed under them.
const SETTINGS: &[(&str, Show, Change)] = &[
    (
        "dom_stripesize",
        |settings| settings.dom_stripesize().to_string(),
        |settings, text| settings.set_dom_stripesize(values::bytes(text, 1)?),
    ),
    (
        "dom_stripesize_max_kb",
        |settings| (settings.dom_stripesize() >> 10).to_string(),
        |settings, text| settings.set_dom_stripesize(values::bytes(text, 1 << 10)?),
    ),
    (
        "stripesize",
        |settings| settings.stripesize().to_string(),
        |settings, text| settings.set_stripesize(values::bytes(text, 1)?),
    ),
    (
        "stripecount",
        |settings| settings.stripecount().to_string(),
        |settings, text| settings.set_stripecount(values::signed_of_any_base(text)?),
    ),
    (
        "max_stripecount",
        |settings| settings.max_stripecount().to_string(),
        |settings, text| settings.set_max_stripecount(values::signed_of_any_base(text)?),
    ),
    (
        "stripeoffset",
        |settings| settings.stripeoffset().to_string(),
        |settings, text| settings.set_stripeoffset(values::signed_of_any_base(text)?),
    ),
    (
        "qos_maxage",
        |settings| settings.qos_maxage().to_string(),
        |settings, text| {
            settings.set_qos_maxage(
                values::number_of_any_base(text)?.try_into().map_err(|_| Errno::ERANGE)?,
            )
        },
    ),
    (
        "qos_threshold_rr",
        |settings| format!("{}%", settings.qos_threshold_rr()),
        |settings, text| settings.set_qos_threshold_rr(percent(text)?),
    ),
    (
        "qos_prio_free",
        |settings| format!("{}%", settings.qos_prio_free()),
        |settings, text| settings.set_qos_prio_free(percent(text)?),
    ),
];

type ShowDirectories = fn(&DirectorySettings) -> String;
type ChangeDirectories = fn(&mut DirectorySettings, &str) -> Result<(), Errno>;

/// Parameters of directories with stripes: name, how it is shown, how it is set.
const OF_DIRECTORIES: &[(&str, ShowDirectories, ChangeDirectories)] = &[
    (
        "mdt_hash",
        |settings| {
            let found = HASHES.iter().find(|(hash, _)| *hash == settings.hash());
            found.map_or("none", |(_, name)| name).to_owned()
        },
        |settings, text| settings.set_hash(hash(text)?),
    ),
    (
        "max_mdt_stripecount",
        |settings| settings.max_mdt_stripecount().to_string(),
        |settings, text| settings.set_max_mdt_stripecount(count(text)?),
    ),
    (
        "max_stripes_per_mdt",
        |settings| settings.max_stripes_per_mdt().to_string(),
        |settings, text| settings.set_max_stripes_per_mdt(count(text)?),
    ),
];

/// How names choose a stripe, as Lustre calls it.
const HASHES: [(LmvHash, &str); 4] = [
    (LmvHash::ALL_CHARS, "all_char"),
    (LmvHash::FNV_1A_64, "fnv_1a_64"),
    (LmvHash::CRUSH, "crush"),
    (LmvHash::CRUSH2, "crush2"),
];

/// A hash by name or number.
fn hash(text: &str) -> Result<LmvHash, Errno> {
    let text = text.trim();
    let is_it = |(hash, name): &&(LmvHash, &str)| *name == text || hash.0.to_string() == text;
    HASHES.iter().find(is_it).map(|(hash, _)| *hash).ok_or(Errno::EINVAL)
}

/// A count, which Lustre refuses by its range if it is less than none.
fn count(text: &str) -> Result<u64, Errno> {
    u64::try_from(values::signed_of_any_base(text)?).map_err(|_| Errno::ERANGE)
}

/// Parameters of files that are made to be appended to: name, how it is shown, how it is set.
const APPENDING: &[(&str, Show, Change)] = &[
    (
        "append_stripe_count",
        |settings| settings.append_stripe_count().to_string(),
        |settings, text| settings.set_append_stripe_count(values::signed_of_any_base(text)?),
    ),
    ("append_pool", LayoutSettings::append_pool, |settings, text| {
        settings.set_append_pool(text.trim())
    }),
];

/// Adds the parameters of an MDT's layouts; what keeps its pools.
pub fn add(tree: &Tree, name: &TargetName, mdt: &Arc<Mdt>) -> Arc<MdtPools> {
    let root = format!("lod.{name}-mdtlov");
    add_settings(tree, &root, mdt, SETTINGS);
    add_settings(tree, &format!("mdd.{name}"), mdt, APPENDING);
    for (leaf, show, change) in OF_DIRECTORIES {
        let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || show(&reader.directory_settings()),
            move |text| writer.change_directory_settings(|settings| change(settings, text)),
        );
    }
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("mdd.{name}.atime_diff"),
        move || reader.atime_diff().to_string(),
        move |text| {
            writer.set_atime_diff(text.trim().parse().map_err(|_| Errno::EINVAL)?);
            Ok(())
        },
    );
    let reader = Arc::clone(mdt);
    tree.add(&format!("{root}.dom_stripesize_cur_kb"), move || {
        (reader.dom_stripesize_now() >> 10).to_string()
    });
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.dom_threshold_free_mb"),
        move || reader.dom_threshold().to_string(),
        move |text| writer.set_dom_threshold(|all| threshold(text, all)),
    );
    let (mdt, fsname) = (Arc::clone(mdt), name.fsname.clone());
    let pools = Arc::new(MdtPools { mdt, fsname, shown: Mutex::default() });
    let shown = Arc::clone(&pools);
    tree.add_branch(&format!("{root}.pools"), move || pool_leaves(shown.shown.lock().clone()));
    pools
}

fn add_settings(
    tree: &Tree,
    root: &str,
    mdt: &Arc<Mdt>,
    settings: &'static [(&str, Show, Change)],
) {
    for (leaf, show, change) in settings {
        let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || show(&reader.layout_settings()),
            move |text| writer.change_layout_settings(|settings| change(settings, text)),
        );
    }
}

/// MiB, or a percentage of the MiB that the MDT has in all: never more.
fn threshold(text: &str, all: u64) -> Result<u64, Errno> {
    let total = all.saturating_mul(values::MIB);
    Ok(values::bytes_of(text, values::MIB, total)? / values::MIB)
}

/// With or without the sign behind it.
pub(super) fn percent(text: &str) -> Result<u32, Errno> {
    let number = text.split('%').next().unwrap_or_default();
    values::number_of_any_base(number)?.try_into().map_err(|_| Errno::ERANGE)
}

#[cfg(test)]
mod tests {
    use sheen_types::Errno;

    use sheen_wire::lmv::LmvHash;

    use super::{count, hash, percent, threshold};

    #[test]
    fn hashes_of_directories_have_names_and_numbers() {
        assert_eq!((hash("crush\n"), hash("1")), (Ok(LmvHash::CRUSH), Ok(LmvHash::ALL_CHARS)));
        assert_eq!((hash("none"), hash("5")), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
        assert_eq!((count("0x10"), count("-1")), (Ok(16), Err(Errno::ERANGE)));
    }

    #[test]
    fn percents_and_counts_are_read_as_in_lustre() {
        assert_eq!((percent("17"), percent("91%\n")), (Ok(17), Ok(91)));
        assert_eq!((threshold("50%", 1000), threshold("2G\n", 4096)), (Ok(500), Ok(2048)));
        assert_eq!(threshold("101%", 1000), Err(Errno::ERANGE));
        assert_eq!((threshold("300", 1000), threshold("1G", 1000)), (Ok(300), Err(Errno::ERANGE)));
        assert_eq!(
            (percent("0x10%"), percent("x"), percent("-1")),
            (Ok(16), Err(Errno::EINVAL), Err(Errno::EINVAL))
        );
    }
}
