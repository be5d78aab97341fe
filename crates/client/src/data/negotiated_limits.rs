//! The limits negotiated with an OST at connect, and those that operators have set (`lctl set_param osc.*`).

use std::sync::atomic::Ordering;

use sheen_types::Setting;
use sheen_types::limits::{BULK_BYTES_MAX, LNET_PAYLOAD_BYTES_MAX};
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::{ChecksumTypes, ConnectFlags, ConnectFlags2, ObdConnectData};

use super::data_target::DataTarget;

/// Dirty bytes towards one OST by default; Lustre's `max_dirty_mb` lies between 32 and 2,000 MiB.
const DIRTY_BYTES_MAX: u64 = 64 << 20;

/// Reads and writes of at most so many bytes go inside the messages by default (`short_io_bytes`).
const SHORT_IO_BYTES: u64 = 16 << 10;
/// How often data whose checksum was wrong on arrival is sent again by default (`resend_count`).
const RESENDS: u32 = 10;
/// Grant that was unused for so long is returned, by default (`grant_shrink_interval`).
const SHRINK_SECONDS: u32 = 1200;

/// Largest object of an OST that names no limit: what ext4 holds (`LUSTRE_EXT4_STRIPE_MAXBYTES`).
const OBJECT_BYTES_MAX_DEFAULT: u64 = 0x1000_0000_0000 - 4096;

/// What operators set of a data target (`lctl set_param osc.*`).
pub struct DataTargetSettings {
    pub(super) dirty_bytes_max: Setting<u64>,
    /// Bytes of one bulk that is read (`max_mb_per_rpc_read`): whole pages; never more than agreed.
    pub read_bytes_max: Setting<u64>,
    /// Bytes of one bulk that is written (`max_mb_per_rpc_write`): whole pages; never more than agreed.
    pub write_bytes_max: Setting<u64>,
    /// Whether bulk data is checksummed, as far as the OST does it (`checksums`).
    pub checksums: Setting<bool>,
    /// The flag of the wanted checksum; 0 for the preferred one.
    checksum: Setting<u32>,
    /// Up to how many bytes data goes inside the messages (`short_io_bytes`), as far as the OST takes it so; 0 for
    /// none.
    pub short_io_bytes: Setting<u64>,
    /// How often data is sent again whose checksum was wrong (`resend_count`); 0 for never.
    pub resends: Setting<u32>,
    /// Whether data whose checksum was wrong is dumped for inspection (`checksum_dump`).
    pub dumps: Setting<bool>,
    /// Whether unused grant is returned (`grant_shrink`), as far as the OST supports that.
    pub shrinks: Setting<bool>,
    /// After how many seconds without use (`grant_shrink_interval`).
    pub shrink_interval: Setting<u32>,
}

impl Default for DataTargetSettings {
    fn default() -> Self {
        Self {
            dirty_bytes_max: Setting::new(DIRTY_BYTES_MAX),
            read_bytes_max: Setting::new(BULK_BYTES_MAX as u64),
            write_bytes_max: Setting::new(BULK_BYTES_MAX as u64),
            checksums: Setting::new(true),
            checksum: Setting::new(0),
            short_io_bytes: Setting::new(SHORT_IO_BYTES),
            resends: Setting::new(RESENDS),
            dumps: Setting::new(false),
            shrinks: Setting::new(true),
            shrink_interval: Setting::new(SHRINK_SECONDS),
        }
    }
}

/// The limits negotiated with the OST; read several times for each RPC.
#[derive(Clone, Copy, Debug)]
pub(super) struct NegotiatedLimits {
    /// Bytes of one bulk.
    pub(super) bulk_bytes: u64,
    /// Bytes of one bulk that is read: within the other one's limit.
    pub(super) read_bytes: u64,
    /// Up to how many bytes data goes inside the messages.
    pub(super) short_io: u64,
    /// The checksum that data goes with.
    pub(super) checksum: Option<Checksum>,
    /// Those that both sides compute.
    pub(super) checksums: ChecksumTypes,
    /// Largest size of an object.
    pub(super) object_bytes_max: u64,
    /// Whether grant may be returned at any time.
    pub(super) shrinks: bool,
    /// Whether locks that are not to grow do not.
    pub(super) locks_ahead: bool,
}

impl Default for NegotiatedLimits {
    /// Before the first connect: the least, and no limit that the OST may not have.
    fn default() -> Self {
        Self {
            bulk_bytes: 1 << 20,
            read_bytes: 1 << 20,
            short_io: 0,
            checksum: None,
            checksums: ChecksumTypes::NONE,
            object_bytes_max: u64::MAX,
            shrinks: false,
            locks_ahead: false,
        }
    }
}

/// How many parts a bulk of so many bytes may have, as `ioo_max_brw` encodes it: one less, in the upper half.
/// Lustre's servers find by it how many parts there are, from match bits that end in the last one's number,
/// so it is a power of two.
pub(super) fn max_brw(bulk_bytes: u64) -> u32 {
    let parts = bulk_bytes.div_ceil(LNET_PAYLOAD_BYTES_MAX as u64).max(1);
    (parts.next_power_of_two() as u32 - 1) << 16
}

impl NegotiatedLimits {
    pub(super) fn of(data: &ObdConnectData) -> Self {
        let has = |flag| data.flags.contains(flag);
        let brw_size = u64::from(data.brw_size);
        let says_max = has(ConnectFlags::MAXBYTES) && data.maxbytes > 0;
        let bulk = if brw_size == 0 { 1 << 20 } else { brw_size.min(BULK_BYTES_MAX as u64) };
        let checksums = data.cksum_types & Checksum::OFFERED;
        let checksums = if has(ConnectFlags::CKSUM) { checksums } else { ChecksumTypes::NONE };
        Self {
            bulk_bytes: bulk,
            read_bytes: bulk,
            short_io: if has(ConnectFlags::SHORTIO) { u64::MAX } else { 0 },
            checksum: Checksum::choose(checksums),
            checksums,
            shrinks: has(ConnectFlags::GRANT_SHRINK),
            locks_ahead: data.flags2.contains(ConnectFlags2::LOCKAHEAD),
            object_bytes_max: if says_max { data.maxbytes } else { OBJECT_BYTES_MAX_DEFAULT },
        }
    }
}

impl DataTarget {
    /// Takes over what an answer to a connect says.
    pub(super) fn negotiate(&self, data: &ObdConnectData) {
        *self.limits.lock() = NegotiatedLimits::of(data);
        // Only OSTs of Sheen know this flag.
        let knows_bytes = data.flags2.contains(ConnectFlags2::MDT_IDENTITY);
        self.needs_whole_pages.store(!knows_bytes, Ordering::Relaxed);
    }

    /// Whether locks have to be on whole pages, and no two pieces of a page may be on their way at once: an OST of
    /// Lustre panics, hangs or loses bytes otherwise. Ours knows bytes: writers of neighbouring records do not revoke
    /// each other's locks, and what lies apart in a page goes in one RPC.
    pub(super) fn needs_whole_pages(&self) -> bool {
        self.needs_whole_pages.load(Ordering::Relaxed)
    }

    /// The limits negotiated when the OST was last connected, within what operators have set.
    pub(super) fn limits(&self) -> NegotiatedLimits {
        let agreed = *self.limits.lock();
        let settings = &self.settings;
        let wanted = ChecksumTypes(settings.checksum.get());
        let wanted = Checksum::choose(agreed.checksums & wanted).or(agreed.checksum);
        NegotiatedLimits {
            bulk_bytes: agreed.bulk_bytes.min(settings.write_bytes_max.get()),
            read_bytes: agreed.bulk_bytes.min(settings.read_bytes_max.get()),
            short_io: agreed.short_io.min(settings.short_io_bytes.get()),
            checksum: wanted.filter(|_| settings.checksums.get()),
            ..agreed
        }
    }

    /// Largest size of an object there.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        self.limits.lock().object_bytes_max
    }

    /// Bytes of one bulk that is read, and of one that is written.
    #[must_use]
    pub fn bulk_bytes(&self) -> (u64, u64) {
        let limits = self.limits();
        (limits.read_bytes, limits.bulk_bytes)
    }

    /// Bytes of one bulk as the OST allows them: what [`DataTargetSettings::read_bytes_max`] and the like may go up to.
    #[must_use]
    pub fn bulk_bytes_agreed(&self) -> u64 {
        self.limits.lock().bulk_bytes
    }

    /// The checksums that both sides compute, and the one that is used (`checksum_type`).
    #[must_use]
    pub fn checksum_types(&self) -> (ChecksumTypes, Option<Checksum>) {
        let agreed = *self.limits.lock();
        let wanted = ChecksumTypes(self.settings.checksum.get());
        (agreed.checksums, Checksum::choose(agreed.checksums & wanted).or(agreed.checksum))
    }

    /// From now on uses one of these, as far as the OST computes it.
    pub fn choose_checksum(&self, wanted: ChecksumTypes) {
        self.settings.checksum.set(wanted.0);
    }

    /// Bytes that may be dirty at once (`max_dirty_mb`).
    #[must_use]
    pub fn dirty_bytes_max(&self) -> u64 {
        self.settings.dirty_bytes_max.get()
    }

    /// Sets the bytes that may be dirty at once (`max_dirty_mb`). More that are dirty already are written as
    /// they would be.
    pub fn limit_dirty(&self, bytes: u64) {
        self.settings.dirty_bytes_max.set(bytes);
        self.shared.room_freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_brw_says_how_many_parts_a_bulk_may_have() {
        assert_eq!(max_brw(1 << 20), 0);
        assert_eq!(max_brw(4 << 20), 3 << 16);
        assert_eq!(max_brw(64 << 10), 0);
        assert_eq!(max_brw(3 << 20), 3 << 16);
    }
}
