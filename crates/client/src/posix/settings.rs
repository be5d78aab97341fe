//! What operators set of a mount (`lctl set_param llite.*`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::Instant;

use super::{AheadSettings, Attributes, Credentials, FsStat};
use crate::cache::{HeatRules, OpenCacheRules};

/// `SBI_DEFAULT_HEAT_DECAY_WEIGHT`, in percent.
const HEAT_PERCENT: u32 = 80;
/// `SBI_DEFAULT_HEAT_PERIOD_SECOND`.
const HEAT_SECONDS: u64 = 60;
/// No group in particular (`MDT_INVALID_GID`).
const ANY_GROUP: u32 = u32::MAX;

/// The settings of one mount.
pub struct Settings {
    ahead: AheadSettings,
    lazy_statfs: AtomicBool,
    sync_on_close: AtomicBool,
    user_xattrs: AtomicBool,
    /// Bytes of a block that `stat(2)` reports; 0 for those that suit the inode.
    stat_block: AtomicU32,
    /// How long an answer to statfs is valid, in seconds.
    statfs_age_max: AtomicU64,
    statfs: Mutex<Option<(Instant, FsStat)>>,
    reports_size: AtomicBool,
    /// Whether some writers bypass the kernel's pages unasked.
    hybrid_io: AtomicBool,
    /// Who besides root may lay files out; [`ANY_GROUP`] for all.
    layout_group: AtomicU32,
    heat: HeatSettings,
    open_cache: OpenCacheSettings,
}

/// How the heat of files is counted.
pub struct HeatSettings {
    is_on: AtomicBool,
    weight: AtomicU32,
    period: AtomicU64,
}

impl Default for HeatSettings {
    fn default() -> Self {
        let (weight, period) = ((HEAT_PERCENT * 256 + 50) / 100, HEAT_SECONDS);
        Self {
            is_on: AtomicBool::new(false),
            weight: AtomicU32::new(weight),
            period: AtomicU64::new(period),
        }
    }
}

impl HeatSettings {
    /// Whether it is counted (`file_heat`).
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Sets whether heat is counted (`file_heat`).
    pub fn set_counts(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// How much of the heat the last period is, in percent (`heat_decay_percentage`).
    #[must_use]
    pub fn percent(&self) -> u32 {
        (self.weight.load(Ordering::Relaxed) * 100 + 128) / 256
    }

    /// Sets how much of the heat the last period is, in percent (`heat_decay_percentage`); more than 100 is
    /// 100.
    pub fn set_percent(&self, percent: u32) {
        self.weight.store((percent.min(100) * 256 + 50) / 100, Ordering::Relaxed);
    }

    /// Seconds of a period (`heat_period_second`).
    #[must_use]
    pub fn period(&self) -> u64 {
        self.period.load(Ordering::Relaxed)
    }

    /// Sets the seconds of a period (`heat_period_second`); none is one.
    pub fn set_period(&self, seconds: u64) {
        self.period.store(seconds.max(1), Ordering::Relaxed);
    }

    pub(super) fn rules(&self) -> HeatRules {
        HeatRules { weight: self.weight.load(Ordering::Relaxed).into(), period: self.period() }
    }

    /// The rules, if it is counted at all.
    pub(super) fn counted(&self) -> Option<HeatRules> {
        self.is_on().then(|| self.rules())
    }
}

/// When a file stays open on its MDT after its last close, for the next open.
pub struct OpenCacheSettings {
    count: AtomicU32,
    /// In milliseconds, as the next.
    reopened_within: AtomicU32,
    forget_after: AtomicU32,
}

impl Default for OpenCacheSettings {
    /// `SBI_DEFAULT_OPENCACHE_THRESHOLD_*`.
    fn default() -> Self {
        Self {
            count: AtomicU32::new(5),
            reopened_within: AtomicU32::new(100),
            forget_after: AtomicU32::new(60_000),
        }
    }
}

impl OpenCacheSettings {
    /// From how many opens on (`opencache_threshold_count`); 0 for never.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Sets from how many opens on a file stays open (`opencache_threshold_count`); 0 for never.
    pub fn set_count(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// A file that is opened again so many milliseconds after its close stays open at once
    /// (`opencache_threshold_ms`).
    #[must_use]
    pub fn reopened_within(&self) -> u32 {
        self.reopened_within.load(Ordering::Relaxed)
    }

    /// Sets within how many milliseconds of its close a file is to be opened to stay open at once
    /// (`opencache_threshold_ms`).
    pub fn set_reopened_within(&self, millis: u32) {
        self.reopened_within.store(millis, Ordering::Relaxed);
    }

    /// Opens are counted anew when a file was closed for so many milliseconds (`opencache_max_ms`).
    #[must_use]
    pub fn forget_after(&self) -> u32 {
        self.forget_after.load(Ordering::Relaxed)
    }

    /// Sets for how many milliseconds a file is to be closed for its opens to be counted anew
    /// (`opencache_max_ms`).
    pub fn set_forget_after(&self, millis: u32) {
        self.forget_after.store(millis, Ordering::Relaxed);
    }

    pub(super) fn rules(&self) -> OpenCacheRules {
        let reopened_within = Duration::from_millis(self.reopened_within().into());
        OpenCacheRules { count: self.count(), reopened_within }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ahead: AheadSettings::default(),
            lazy_statfs: AtomicBool::new(true),
            sync_on_close: AtomicBool::new(false),
            user_xattrs: AtomicBool::new(true),
            stat_block: AtomicU32::new(0),
            statfs_age_max: AtomicU64::new(0),
            statfs: Mutex::default(),
            reports_size: AtomicBool::new(true),
            hybrid_io: AtomicBool::new(true),
            layout_group: AtomicU32::new(ANY_GROUP),
            heat: HeatSettings::default(),
            open_cache: OpenCacheSettings::default(),
        }
    }
}

impl Settings {
    /// What is asked before a program asks.
    #[must_use]
    pub fn ahead(&self) -> &AheadSettings {
        &self.ahead
    }

    /// Whether statfs leaves OSTs out that cannot be reached (`lazystatfs`), or waits for them.
    #[must_use]
    pub fn lazy_statfs(&self) -> bool {
        self.lazy_statfs.load(Ordering::Relaxed)
    }

    /// Sets whether statfs leaves OSTs out that cannot be reached (`lazystatfs`).
    pub fn set_lazy_statfs(&self, on: bool) {
        self.lazy_statfs.store(on, Ordering::Relaxed);
    }

    /// Whether the last close of a file that was written makes it durable (`sync_on_close`).
    #[must_use]
    pub fn sync_on_close(&self) -> bool {
        self.sync_on_close.load(Ordering::Relaxed)
    }

    /// Sets whether the last close of a file that was written makes it durable (`sync_on_close`).
    pub fn set_sync_on_close(&self, on: bool) {
        self.sync_on_close.store(on, Ordering::Relaxed);
    }

    /// Whether there are attributes named `user.*` (`-o user_xattr`).
    #[must_use]
    pub fn user_xattrs(&self) -> bool {
        self.user_xattrs.load(Ordering::Relaxed)
    }

    /// Sets whether there are attributes named `user.*` (`-o user_xattr`).
    pub fn set_user_xattrs(&self, on: bool) {
        self.user_xattrs.store(on, Ordering::Relaxed);
    }

    /// Bytes of a block that `stat(2)` reports (`stat_blocksize`); 0 for those that suit the inode.
    #[must_use]
    pub fn stat_block(&self) -> u32 {
        self.stat_block.load(Ordering::Relaxed)
    }

    /// Sets the bytes of a block that `stat(2)` reports (`stat_blocksize`); 0 for those that suit the inode.
    pub fn set_stat_block(&self, bytes: u32) {
        self.stat_block.store(bytes, Ordering::Relaxed);
    }

    /// Attributes as operators want them reported.
    pub(super) fn adjusted(&self, mut attributes: Attributes) -> Attributes {
        match self.stat_block() {
            0 => {}
            bytes => attributes.block_size = bytes,
        }
        attributes
    }

    /// For how many seconds an answer to statfs is valid (`statfs_max_age`).
    #[must_use]
    pub fn statfs_age_max(&self) -> u64 {
        self.statfs_age_max.load(Ordering::Relaxed)
    }

    /// From now on so long.
    pub fn set_statfs_age_max(&self, seconds: u64) {
        self.statfs_age_max.store(seconds, Ordering::Relaxed);
    }

    /// The answer to statfs that is valid now.
    pub(super) fn statfs_known(&self, now: Instant) -> Option<FsStat> {
        let age = Duration::from_secs(self.statfs_age_max());
        let known = *self.statfs.lock();
        known.filter(|(at, _)| now.since(*at) < age).map(|(_, stat)| stat)
    }

    /// There is a new one.
    pub(super) fn learn_statfs(&self, now: Instant, stat: FsStat) {
        if self.statfs_age_max() > 0 {
            *self.statfs.lock() = Some((now, stat));
        }
    }

    /// Whether a close sends the MDT the size, as far as it is known (`lsom`).
    #[must_use]
    pub fn reports_size(&self) -> bool {
        self.reports_size.load(Ordering::Relaxed)
    }

    /// Sets whether a close sends the MDT the size (`lsom`).
    pub fn set_reports_size(&self, on: bool) {
        self.reports_size.store(on, Ordering::Relaxed);
    }

    /// Whether some writers of shared and striped files bypass the kernel's pages though they did not ask for
    /// it (`hybrid_io`).
    #[must_use]
    pub fn hybrid_io(&self) -> bool {
        self.hybrid_io.load(Ordering::Relaxed)
    }

    /// Sets whether some writers bypass the kernel's pages (`hybrid_io`), for files that are opened from now
    /// on.
    pub fn set_hybrid_io(&self, on: bool) {
        self.hybrid_io.store(on, Ordering::Relaxed);
    }

    /// The group that may give files a layout besides root, who alone may with 0; all ones for any
    /// (`enable_setstripe_gid`).
    #[must_use]
    pub fn layout_group(&self) -> u32 {
        self.layout_group.load(Ordering::Relaxed)
    }

    /// Sets the group that may give files a layout (`enable_setstripe_gid`).
    pub fn set_layout_group(&self, group: u32) {
        self.layout_group.store(group, Ordering::Relaxed);
    }

    /// Whether operators let `who` give a file a layout.
    pub(super) fn may_lay_out(&self, who: &Credentials) -> bool {
        match self.layout_group() {
            ANY_GROUP => true,
            0 => who.uid == 0,
            group => who.uid == 0 || who.is_in_group(group),
        }
    }

    /// How the heat of files is counted.
    #[must_use]
    pub fn heat(&self) -> &HeatSettings {
        &self.heat
    }

    /// When files stay open.
    #[must_use]
    pub fn open_cache(&self) -> &OpenCacheSettings {
        &self.open_cache
    }
}
