//! The default layout that `sheen up` gives a file system when it makes it.

use std::path::Path;

use clap::ValueEnum;
use sheen_store_disk::{OpenOptions, StoreDisk};
use sheen_types::{Errno, TargetKind};

use super::cluster::Cluster;
use super::invalid;
use super::salvage::now;
use sheen_tools::mkfs;
use sheen_tools::output::{Fault, shown_path};

/// The key of `run/cluster`.
const KEY: &str = "layout";

/// The default layout of files, until `lfs setstripe` says something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FirstLayout {
    /// The first 64 KiB of each file on its MDT, where an open brings them; bytes up to 256 MiB on one OST, and what is behind on all OSTs
    SmallFiles,
    /// Lustre's default: each file on one OST
    Lustre,
}

impl FirstLayout {
    fn word(self) -> &'static str {
        match self {
            Self::SmallFiles => "small-files",
            Self::Lustre => "lustre",
        }
    }

    /// What was decided when the file system was made stays. Targets of a size of their own are as large as each other: MDTs
    /// hold no files then unless that is asked for.
    ///
    /// # Errors
    /// `EINVAL` if it was made with another one.
    pub(super) fn settle(
        cluster: &mut Cluster,
        asked: Option<Self>,
        has_size: bool,
    ) -> Result<Self, Fault> {
        let known = cluster.get(KEY).and_then(|word| Self::from_str(word, false).ok());
        let is_made = cluster.count(TargetKind::Mdt) > 0;
        if let (Some(known), Some(asked)) = (known, asked)
            && known != asked
            && is_made
        {
            return Err(invalid(format!(
                "{} was made with --layout {}; change the layout of new files with `lfs setstripe`",
                shown_path(&cluster.directory),
                known.word()
            )));
        }
        let by_default = if has_size { Self::Lustre } else { Self::SmallFiles };
        let layout = asked.or(known).unwrap_or(by_default);
        if !is_made {
            cluster.values.insert(KEY.to_owned(), layout.word().to_owned());
        }
        Ok(layout)
    }

    /// Gives it to the MDT0000 that was just formatted here.
    pub(super) fn give(self, mdt: &Path) -> Result<(), Fault> {
        if self == Self::Lustre {
            return Ok(());
        }
        let store = StoreDisk::open(mdt, &OpenOptions::default());
        let store = store.map_err(|error| mkfs::disk_fault(&error))?;
        let given = sheen_mds::format_for_small_files(&store, now(), sheen_io_os::random_bytes());
        store.close();
        given.map_err(|error| Fault::new(Errno::EIO, format!("{}: {error}", shown_path(mdt))))
    }
}
