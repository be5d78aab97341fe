//! `llite`: a mount as a whole.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_client::posix::{FsStat, Tracked};
use sheen_fuse::FileLocks;
use sheen_types::access::RootSquash;
use sheen_types::limits::{NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use sheen_types::{Errno, PAGE_BYTES};

use super::device::state_letters;
use super::folder::{Folder, Number, Switch};
use super::mount::MountState;
use super::text::Since;
use super::values::{self, MIB, U32_MAX};
use super::{memory_bytes, statahead, tables};
use sheen_control::api::Kind;

/// `PTLRPC_MAX_BRW_SIZE`: the least that is kept of files.
const CACHED_BYTES_MIN: u64 = 64 << 20;
/// Bytes of a layout without stripes, and `OBD_MAX_DEFAULT_EA_SIZE`.
const EA_BYTES_MIN: u64 = 32;
const EA_BYTES_MAX: u64 = 4096;
/// `OBD_STATFS_CACHE_MAX_AGE`, in seconds.
const STATFS_AGE_MAX: u64 = 60;

/// What is on or off.
const SWITCHES: [Switch<MountState>; 7] = [
    ("checksums", MountState::checksums, MountState::set_checksums),
    ("checksum_pages", MountState::checksums, MountState::set_checksums),
    (
        "lazystatfs",
        |it| it.files.settings().lazy_statfs.get(),
        |it, on| it.files.settings().lazy_statfs.set(on),
    ),
    (
        "sync_on_close",
        |it| it.files.settings().sync_on_close.get(),
        |it, on| it.files.settings().sync_on_close.set(on),
    ),
    ("xattr_cache", |it| it.files.caches_xattrs(), |it, on| it.files.set_caches_xattrs(on)),
    (
        "hybrid_io",
        |it| it.files.settings().hybrid_io.get(),
        |it, on| it.files.settings().hybrid_io.set(on),
    ),
    (
        "file_heat",
        |it| it.files.settings().heat.is_on.get(),
        |it, on| it.files.settings().heat.is_on.set(on),
    ),
];

/// Numbers: how heat decays, and when files stay open on the MDT for later opens.
const NUMBERS: [Number<MountState>; 4] = [
    Number {
        leaf: "heat_decay_percentage",
        parse: values::number,
        range: 0..=100,
        read: |it| it.files.settings().heat.percent.get().into(),
        write: |it, percent| it.files.settings().heat.percent.set(percent as u32),
    },
    Number {
        leaf: "heat_period_second",
        parse: values::number,
        range: 1..=U32_MAX,
        read: |it| it.files.settings().heat.period.get(),
        write: |it, seconds| it.files.settings().heat.period.set(seconds),
    },
    Number {
        leaf: "opencache_threshold_ms",
        parse: values::number,
        range: 0..=U32_MAX,
        read: |it| it.files.settings().open_cache.reopened_within.get().into(),
        write: |it, millis| it.files.settings().open_cache.reopened_within.set(millis as u32),
    },
    Number {
        leaf: "opencache_max_ms",
        parse: values::number,
        range: 0..=U32_MAX,
        read: |it| it.files.settings().open_cache.forget_after.get().into(),
        write: |it, millis| it.files.settings().open_cache.forget_after.set(millis as u32),
    },
];

/// Adds its parameters.
pub(super) fn add(state: &Arc<MountState>) {
    let folder = Folder::new(&state.tree, state.llite());
    folder.show("uuid", state, |it| it.info.uuid.clone());
    folder.show("fstype", state, |_| "lustre".to_owned());
    folder.show("client_type", state, |_| "local client".to_owned());
    folder.show("namelen_max", state, |_| NAME_BYTES_MAX.to_string());
    folder.show("max_easize", state, |_| XATTR_VALUE_BYTES_MAX.to_string());
    folder.show("inodes", state, |it| it.files.inodes_known().to_string());
    folder.show("sbi_flags", state, flags);
    add_space(&folder, state);
    add_squash(&folder, state);
    add_statistics(&folder, state);
    add_extents(&folder, state);
    add_read_ahead(&folder, state);
    statahead::add(&folder, state);
    add_block_size(&folder, state);
    add_layouts(&folder, state);
    folder.switches(state, &SWITCHES);
    folder.numbers(state, &NUMBERS);
    add_open_cache(&folder, state);
    state.files.limit_pages(memory_bytes() / 2);
    folder.tune("max_cached_mb", state, cached, set_cached);
    folder.show("unstable_stats", state, unstable);
}

/// How full the file system is, as `df` shows it.
fn add_space(folder: &Folder<'_>, state: &Arc<MountState>) {
    type Read = fn(&FsStat) -> u64;
    let shown: [(&str, Read); 6] = [
        ("kbytestotal", |stat| (stat.blocks * u64::from(stat.block_size)) >> 10),
        ("kbytesfree", |stat| (stat.blocks_free * u64::from(stat.block_size)) >> 10),
        ("kbytesavail", |stat| (stat.blocks_available * u64::from(stat.block_size)) >> 10),
        ("filestotal", |stat| stat.files),
        ("filesfree", |stat| stat.files_free),
        ("blocksize", |stat| stat.block_size.into()),
    ];
    for (leaf, read) in shown {
        folder.show(leaf, state, move |it| {
            it.space().map_or_else(|errno| errno.to_string(), |stat| read(&stat).to_string())
        });
    }
    folder.show("maxbytes", state, |it| {
        let each = it.osts.all().into_iter().map(|(_, osc)| osc.object_bytes_max());
        each.min().unwrap_or(0).to_string()
    });
    folder.show("statfs_state", state, |it| {
        let states = it.statfs_believed();
        state_letters(states.iter().fold(0, |all, stat| all | stat.state))
    });
    folder.tune(
        "statfs_max_age",
        state,
        |it| it.files.settings().statfs_age_max.get().to_string(),
        |it, text| {
            let seconds = values::number(text)?;
            // Not ERANGE, as in Lustre.
            let seconds = values::within(seconds, 0, STATFS_AGE_MAX).map_err(|_| Errno::EINVAL)?;
            it.files.settings().statfs_age_max.set(seconds);
            Ok(())
        },
    );
}

/// Which user the cache takes root for: as the MDTs have it in `mdt.*.root_squash`.
fn add_squash(folder: &Folder<'_>, state: &Arc<MountState>) {
    type Value = (&'static str, fn(&RootSquash) -> String, values::SetSquash);
    let settings: [Value; 2] = [
        ("root_squash", RootSquash::root, RootSquash::set_root),
        ("nosquash_nids", RootSquash::trusted, RootSquash::set_trusted),
    ];
    let squash = Arc::new(Mutex::new(RootSquash::default()));
    for (leaf, read, write) in settings {
        let state = Arc::clone(state);
        folder.tune(
            leaf,
            &squash,
            move |squash| read(&squash.lock()),
            move |squash, text| {
                let mut squash = squash.lock();
                write(&mut squash, text)?;
                state.files.squash_root(squash.identity(state.node.lnet().nid()));
                Ok(())
            },
        );
    }
}

/// The calls to the mount. Whatever is written to them starts them anew, as in Lustre.
fn add_statistics(folder: &Folder<'_>, state: &Arc<MountState>) {
    let since = Arc::new(Since::now());
    let restart = Arc::clone(&since);
    folder.tune(
        "stats",
        state,
        move |it| since.stats(&it.files.statistics().samples()),
        move |it, _| {
            it.files.statistics().clear();
            restart.restart();
            Ok(())
        },
    );
    type Track = (&'static str, fn(Tracked) -> Option<u32>, fn(u32) -> Tracked);
    let tracks: [Track; 3] = [
        (
            "stats_track_pid",
            |it| if let Tracked::Process(pid) = it { Some(pid) } else { None },
            Tracked::Process,
        ),
        (
            "stats_track_ppid",
            |it| if let Tracked::Parent(pid) = it { Some(pid) } else { None },
            Tracked::Parent,
        ),
        (
            "stats_track_gid",
            |it| if let Tracked::Group(gid) = it { Some(gid) } else { None },
            Tracked::Group,
        ),
    ];
    for (leaf, read, make) in tracks {
        folder.tune(
            leaf,
            state,
            move |it| match it.files.statistics().tracked() {
                Tracked::All => "0 (all)".to_owned(),
                tracked => read(tracked).map_or_else(|| "ignored".to_owned(), |id| id.to_string()),
            },
            move |it, text| {
                let id = values::number_within(text, 0, i32::MAX as u64)? as u32;
                let whose = if id == 0 { Tracked::All } else { make(id) };
                it.files.statistics().track(whose);
                // What was counted of other processes goes, as in Lustre.
                it.files.statistics().clear();
                Ok(())
            },
        );
    }
}

/// Sizes and places of reads and writes, counted once an operator turns that on.
fn add_extents(folder: &Folder<'_>, state: &Arc<MountState>) {
    let since = Arc::new(Since::now());
    type Read = fn(&MountState, &Since) -> String;
    let shown: [(&str, Read); 3] = [
        ("extents_stats", |it, since| {
            tables::extents(since, it.files.statistics().extents().counted(), false)
        }),
        ("extents_stats_per_process", |it, since| {
            tables::extents(since, it.files.statistics().extents().counted(), true)
        }),
        ("offset_stats", |it, since| {
            tables::offsets(since, it.files.statistics().extents().counted())
        }),
    ];
    for (leaf, read) in shown {
        let (reader, writer) = (Arc::clone(&since), Arc::clone(&since));
        folder.tune(
            leaf,
            state,
            move |it| read(it, &reader),
            move |it, text| {
                let text = text.trim().to_lowercase();
                let is_zero = text.parse::<u64>() == Ok(0);
                it.files.statistics().extents().set(!is_zero && !text.starts_with("disable"));
                writer.restart();
                Ok(())
            },
        );
    }
}

/// The MiB that bytes take, in bytes.
fn whole_mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB).saturating_mul(MIB)
}

/// How far files are read ahead. As in Lustre, what is more than memory is refused, and what is more than half of
/// it, or than all files may have together, or than a file's window, is cut to that.
fn add_read_ahead(folder: &Folder<'_>, state: &Arc<MountState>) {
    folder.tune(
        "max_read_ahead_mb",
        &state.osts,
        |osts| (osts.read_ahead().total() / MIB).to_string(),
        |osts, text| {
            let bytes = whole_mib(values::bytes_of(text, MIB, memory_bytes())?);
            osts.read_ahead().set_total(bytes.min(memory_bytes() / 2 / MIB * MIB));
            Ok(())
        },
    );
    folder.tune(
        "max_read_ahead_per_file_mb",
        &state.osts,
        |osts| (osts.read_ahead().per_file() / MIB).to_string(),
        |osts, text| {
            let limits = osts.read_ahead();
            let bytes = whole_mib(values::bytes_of(text, MIB, memory_bytes())?);
            limits.set_per_file(bytes.min(limits.total()));
            Ok(())
        },
    );
    folder.tune(
        "max_read_ahead_whole_mb",
        &state.osts,
        |osts| (osts.read_ahead().whole() / MIB).to_string(),
        |osts, text| {
            let limits = osts.read_ahead();
            let bytes = whole_mib(values::bytes_of(text, MIB, memory_bytes())?);
            limits.set_whole(bytes.min(limits.per_file()));
            Ok(())
        },
    );
    let since = Arc::new(Since::now());
    let restart = Arc::clone(&since);
    folder.tune(
        "read_ahead_stats",
        &state.osts,
        move |osts| since.stats(&osts.read_ahead().samples()),
        move |osts, _| {
            osts.read_ahead().clear();
            restart.restart();
            Ok(())
        },
    );
}

/// The block size that `stat(2)` shows; 0 is that of the layout.
fn add_block_size(folder: &Folder<'_>, state: &Arc<MountState>) {
    folder.tune(
        "stat_blocksize",
        state,
        |it| it.files.settings().stat_block.get().to_string(),
        |it, text| {
            let bytes = values::number_within(text, 0, u32::MAX.into())?;
            if bytes != 0 && (bytes < PAGE_BYTES || !bytes.is_power_of_two()) {
                return Err(Errno::ERANGE);
            }
            it.files.settings().stat_block.set(bytes as u32);
            Ok(())
        },
    );
}

/// Who lays files out, and the room for layouts in answers.
fn add_layouts(folder: &Folder<'_>, state: &Arc<MountState>) {
    folder.tune(
        "enable_setstripe_gid",
        state,
        |it| it.files.settings().layout_group.get().cast_signed().to_string(),
        |it, text| {
            let group: i32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
            it.files.settings().layout_group.set(group.cast_unsigned());
            Ok(())
        },
    );
    folder.tune(
        "default_easize",
        state,
        |it| it.files.reply_rooms().0.to_string(),
        |it, text| {
            let bytes = values::within(values::number(text)?, EA_BYTES_MIN, EA_BYTES_MAX);
            // Not ERANGE, as in Lustre.
            it.files.set_layout_room(bytes.map_err(|_| Errno::EINVAL)? as usize);
            Ok(())
        },
    );
}

/// When files stay open on the MDT for later opens.
fn add_open_cache(folder: &Folder<'_>, state: &Arc<MountState>) {
    folder.tune(
        "opencache_threshold_count",
        state,
        |it| match it.files.settings().open_cache.count.get() {
            0 => "off".to_owned(),
            count => count.to_string(),
        },
        |it, text| {
            // A word is a switch, as in Lustre: on is from the first open on.
            let count = values::number_within(text, 0, u32::MAX.into());
            let count = count.or_else(|_| values::switch(text).map(u64::from))?;
            it.files.settings().open_cache.count.set(count as u32);
            Ok(())
        },
    );
}

/// What the mount does, of what Lustre has names for.
fn flags(state: &MountState) -> String {
    let settings = state.files.settings();
    let all = [
        ("localflock", state.options.locks == FileLocks::Local),
        ("flock", state.options.locks == FileLocks::Shared),
        ("checksum", state.checksums()),
        ("lazystatfs", settings.lazy_statfs.get()),
        ("sync_on_close", settings.sync_on_close.get()),
        ("user_fid2path", state.options.users_resolve_fids),
        ("user_xattr", settings.user_xattrs.get()),
        ("64bit_hash", true),
        ("agl", settings.ahead.asks_sizes.get()),
        ("acl", true),
        ("hybrid_io", settings.hybrid_io.get()),
        ("layout", true),
        ("parallel_dio", true),
        ("unaligned_dio", true),
        ("xattr_cache", state.files.caches_xattrs()),
    ];
    all.iter().filter(|(_, is_so)| *is_so).map(|(name, _)| format!("{name} ")).collect()
}

/// What is kept of files, as far as can be reckoned: by the kernel in its pages, and read ahead by the mount.
/// Users are, as in Lustre, the mount, the group of OSTs, and each target with data.
fn cached(state: &MountState) -> String {
    let kept = state.files.pages_kept();
    let ahead = state.osts.read_ahead();
    let (used, most) = ((kept.bytes + ahead.loading()) / MIB, kept.bytes_max / MIB);
    let users = 2 + state.targets().iter().filter(|(target, _)| target.kind != Kind::Mgs).count();
    format!(
        "users: {users}\nmax_cached_mb: {most}\nused_mb: {used}\nunused_mb: {}\nunevict_mb: 0\n\
         reclaim_count: {}\nmax_read_ahead_mb: {}\nused_read_ahead_mb: {}\n",
        most.saturating_sub(used),
        kept.reclaims,
        ahead.total() / MIB,
        ahead.loading() / MIB,
    )
}

/// Bytes, or the line of that name of what is shown; never less than a bulk.
fn set_cached(state: &MountState, text: &str) -> Result<(), Errno> {
    let named = text.split_once("max_cached_mb:");
    let value = named.and_then(|(_, behind)| behind.split_whitespace().next()).unwrap_or(text);
    let bytes = values::bytes_of(value, MIB, memory_bytes())?;
    state.files.limit_pages(bytes.max(CACHED_BYTES_MIN));
    Ok(())
}

/// What was written and may still have to be written again.
fn unstable(state: &MountState) -> String {
    let bytes: u64 = state.node.imports().iter().map(|report| report.traffic.unstable_bytes).sum();
    let (pages, mib) = (bytes.div_ceil(PAGE_BYTES), bytes / MIB);
    format!("unstable_check:{:>13}\nunstable_pages:{pages:>13}\nunstable_mb:{mib:>16}\n", 1)
}
