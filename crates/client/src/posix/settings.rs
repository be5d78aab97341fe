//! What operators set of a mount (`lctl set_param llite.*`).

use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Instant, Setting};

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
    /// What is asked before a program asks.
    pub ahead: AheadSettings,
    /// Whether statfs leaves OSTs out that cannot be reached (`lazystatfs`), or waits for them.
    pub lazy_statfs: Setting<bool>,
    /// Whether the last close of a file that was written makes it durable (`sync_on_close`).
    pub sync_on_close: Setting<bool>,
    /// Whether there are attributes named `user.*` (`-o user_xattr`).
    pub user_xattrs: Setting<bool>,
    /// Bytes of a block that `stat(2)` reports (`stat_blocksize`); 0 for those that suit the inode.
    pub stat_block: Setting<u32>,
    /// For how many seconds an answer to statfs is valid (`statfs_max_age`).
    pub statfs_age_max: Setting<u64>,
    statfs: Mutex<Option<(Instant, FsStat)>>,
    /// Whether a close sends the MDT the size, as far as it is known (`lsom`).
    pub reports_size: Setting<bool>,
    /// Whether some writers of shared and striped files bypass the kernel's pages though they did not ask for it
    /// (`hybrid_io`). It counts for files that are opened from then on.
    pub hybrid_io: Setting<bool>,
    /// The group that may give files a layout besides root, who alone may with 0; all ones for any
    /// (`enable_setstripe_gid`).
    pub layout_group: Setting<u32>,
    /// How the heat of files is counted.
    pub heat: HeatSettings,
    /// When files stay open.
    pub open_cache: OpenCacheSettings,
}

/// How the heat of files is counted.
pub struct HeatSettings {
    /// Whether it is counted (`file_heat`).
    pub is_on: Setting<bool>,
    /// How much of the heat the last period is, in percent (`heat_decay_percentage`); more than 100 is 100.
    pub percent: Setting<u32>,
    /// Seconds of a period (`heat_period_second`); none is one.
    pub period: Setting<u64>,
}

impl Default for HeatSettings {
    fn default() -> Self {
        Self {
            is_on: Setting::new(false),
            percent: Setting::new(HEAT_PERCENT),
            period: Setting::new(HEAT_SECONDS),
        }
    }
}

impl HeatSettings {
    pub(super) fn rules(&self) -> HeatRules {
        let weight = (self.percent.get().min(100) * 256 + 50) / 100;
        HeatRules { weight: weight.into(), period: self.period.get().max(1) }
    }

    /// The rules, if it is counted at all.
    pub(super) fn counted(&self) -> Option<HeatRules> {
        self.is_on.get().then(|| self.rules())
    }
}

/// When a file stays open on its MDT after its last close, for the next open.
pub struct OpenCacheSettings {
    /// From how many opens on (`opencache_threshold_count`); 0 for never.
    pub count: Setting<u32>,
    /// A file that is opened again so many milliseconds after its close stays open at once
    /// (`opencache_threshold_ms`).
    pub reopened_within: Setting<u32>,
    /// Opens are counted anew when a file was closed for so many milliseconds (`opencache_max_ms`).
    pub forget_after: Setting<u32>,
}

impl Default for OpenCacheSettings {
    /// `SBI_DEFAULT_OPENCACHE_THRESHOLD_*`.
    fn default() -> Self {
        Self {
            count: Setting::new(5),
            reopened_within: Setting::new(100),
            forget_after: Setting::new(60_000),
        }
    }
}

impl OpenCacheSettings {
    pub(super) fn rules(&self) -> OpenCacheRules {
        let reopened_within = Duration::from_millis(self.reopened_within.get().into());
        OpenCacheRules { count: self.count.get(), reopened_within }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ahead: AheadSettings::default(),
            lazy_statfs: Setting::new(true),
            sync_on_close: Setting::new(false),
            user_xattrs: Setting::new(true),
            stat_block: Setting::new(0),
            statfs_age_max: Setting::new(0),
            statfs: Mutex::default(),
            reports_size: Setting::new(true),
            hybrid_io: Setting::new(true),
            layout_group: Setting::new(ANY_GROUP),
            heat: HeatSettings::default(),
            open_cache: OpenCacheSettings::default(),
        }
    }
}

impl Settings {
    /// Attributes as operators want them reported.
    pub(super) fn adjusted(&self, mut attributes: Attributes) -> Attributes {
        match self.stat_block.get() {
            0 => {}
            bytes => attributes.block_size = bytes,
        }
        attributes
    }

    /// The answer to statfs that is valid now.
    pub(super) fn statfs_known(&self, now: Instant) -> Option<FsStat> {
        let age = Duration::from_secs(self.statfs_age_max.get());
        let known = *self.statfs.lock();
        known.filter(|(at, _)| now.since(*at) < age).map(|(_, stat)| stat)
    }

    /// There is a new one.
    pub(super) fn learn_statfs(&self, now: Instant, stat: FsStat) {
        if self.statfs_age_max.get() > 0 {
            *self.statfs.lock() = Some((now, stat));
        }
    }

    /// Whether operators let `who` give a file a layout.
    pub(super) fn may_lay_out(&self, who: &Credentials) -> bool {
        match self.layout_group.get() {
            ANY_GROUP => true,
            0 => who.uid == 0,
            group => who.uid == 0 || who.is_in_group(group),
        }
    }
}
