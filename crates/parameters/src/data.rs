//! The parameters of `osc` and `mdc` that are about the data of files.

use std::sync::Arc;

use sheen_client::data::DataTarget;
use sheen_types::limits::BULK_BYTES_MAX;
use sheen_types::{Errno, PAGE_BYTES};
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::ChecksumTypes;

use super::device::Device;
use super::folder::{Folder, Number, Switch};
use super::memory_bytes;
use super::values::{self, MIB, U32_MAX};
use sheen_control::api::Kind;

/// `OSC_MAX_DIRTY_MB_MAX`, which is too many already.
const DIRTY_MIB_MAX: u64 = 2047;
/// `MIN_SHORT_IO_BYTES`, `OBD_DEF_SHORT_IO_BYTES` and `OBD_MAX_SHORT_IO_BYTES`.
const SHORT_IO_MIN: u64 = 64;
const SHORT_IO_DEFAULT: u64 = 16 << 10;
const SHORT_IO_MAX: u64 = 64 << 10;
/// Lustre's names of checksums, in its order.
const CHECKSUMS: [(&str, ChecksumTypes); 7] = [
    ("crc32", ChecksumTypes::CRC32),
    ("adler", ChecksumTypes::ADLER),
    ("crc32c", ChecksumTypes::CRC32C),
    ("t10ip512", ChecksumTypes::T10IP512),
    ("t10ip4K", ChecksumTypes::T10IP4K),
    ("t10crc512", ChecksumTypes::T10CRC512),
    ("t10crc4K", ChecksumTypes::T10CRC4K),
];

type Read = fn(&DataTarget) -> String;
type Write = fn(&DataTarget, &str) -> Result<(), Errno>;

/// What is on or off.
const SWITCHES: [Switch<DataTarget>; 3] = [
    ("checksum_dump", |osc| osc.settings.dumps.get(), |osc, on| osc.settings.dumps.set(on)),
    ("checksums", |osc| osc.settings.checksums.get(), |osc, on| osc.settings.checksums.set(on)),
    ("grant_shrink", |osc| osc.shrinks_grant(), |osc, on| osc.settings.shrinks.set(on)),
];

/// Numbers, in seconds.
const NUMBERS: [Number<DataTarget>; 1] = [Number {
    leaf: "grant_shrink_interval",
    parse: values::number_of_any_base,
    range: 1..=U32_MAX,
    read: |osc| osc.settings.shrink_interval.get().into(),
    write: |osc, seconds| osc.settings.shrink_interval.set(seconds as u32),
}];

/// Numbers that only OSTs have.
const OST_NUMBERS: [Number<DataTarget>; 1] = [Number {
    leaf: "resend_count",
    parse: values::number,
    range: 0..=U32_MAX,
    read: |osc| osc.settings.resends.get().into(),
    write: |osc, count| osc.settings.resends.set(count as u32),
}];

/// Adds them.
pub(super) fn add(folder: &Folder<'_>, device: &Arc<Device>) {
    let Some(osc) = &device.osc else { return };
    folder.switches(osc, &SWITCHES);
    folder.numbers(osc, &NUMBERS);
    let tunable: [(&str, Read, Write); 5] = [
        ("max_dirty_mb", |osc| (osc.dirty_bytes_max() / MIB).to_string(), set_dirty),
        ("max_pages_per_rpc", |osc| (osc.bulk_bytes().1 / PAGE_BYTES).to_string(), set_pages),
        ("max_mb_per_rpc_read", |osc| mib(osc.bulk_bytes().0), set_read_mib),
        ("max_mb_per_rpc_write", |osc| mib(osc.bulk_bytes().1), set_write_mib),
        ("checksum_type", checksum_types, choose_checksum),
    ];
    for (leaf, read, write) in tunable {
        folder.tune(leaf, osc, read, write);
    }
    let shown: [(&str, Read); 3] = [
        ("cur_grant_bytes", |osc| osc.grant_dirty_lost()[0].to_string()),
        ("cur_dirty_grant_bytes", |osc| osc.grant_dirty_lost()[1].to_string()),
        ("cur_lost_grant_bytes", |osc| osc.grant_dirty_lost()[2].to_string()),
    ];
    for (leaf, read) in shown {
        folder.show(leaf, osc, read);
    }
    if device.target.kind == Kind::Mdt {
        folder.show("mdc_cached_mb", osc, |osc| cached(osc, false));
        folder.show("mdc_stats", device, Device::lockless_text);
        return;
    }
    folder.show("osc_cached_mb", osc, |osc| cached(osc, true));
    folder.show("osc_stats", device, Device::lockless_text);
    folder.show("cur_dirty_bytes", osc, |osc| osc.grant_dirty_lost()[1].to_string());
    folder.tune(
        "short_io_bytes",
        osc,
        |osc| osc.settings.short_io_bytes.get().to_string(),
        |osc, text| {
            // As Lustre: none at all, or a number too large to mean pages; more than a message holds is cut.
            let bytes = match text.trim() {
                "-1" => SHORT_IO_DEFAULT,
                text => values::bytes(text, 1)?,
            };
            if bytes > 0 {
                values::within(bytes, SHORT_IO_MIN, MIB)?;
            }
            osc.settings.short_io_bytes.set(bytes.min(SHORT_IO_MAX));
            Ok(())
        },
    );
    folder.numbers(osc, &OST_NUMBERS);
    Device::add_rpc_stats(folder, device);
}

fn mib(bytes: u64) -> String {
    bytes.div_ceil(MIB).to_string()
}

/// What is kept in memory; the objects in use are those that are busy.
fn cached(osc: &DataTarget, is_osc: bool) -> String {
    let (bytes, busy) = osc.cached();
    let unevictable = if is_osc { "unevict_cnt: 0\n" } else { "" };
    format!("used_mb: {}\nbusy_cnt: {busy}\n{unevictable}reclaim: 0\n", bytes / MIB)
}

fn set_dirty(osc: &DataTarget, text: &str) -> Result<(), Errno> {
    let bytes = values::bytes(text, MIB)?.div_ceil(MIB).saturating_mul(MIB);
    let most = (DIRTY_MIB_MAX * MIB).min(memory_bytes() / 4);
    osc.limit_dirty(values::within(bytes, MIB, most)?);
    Ok(())
}

/// In pages; with a unit, or beyond what pages could be, in bytes.
fn set_pages(osc: &DataTarget, text: &str) -> Result<(), Errno> {
    let is_count = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    let value = values::bytes(text, 1)?;
    let pages = if is_count && value < MIB { value } else { value / PAGE_BYTES };
    let bytes = within_agreed(osc, pages.saturating_mul(PAGE_BYTES))?;
    osc.settings.read_bytes_max.set(bytes);
    osc.settings.write_bytes_max.set(bytes);
    Ok(())
}

fn set_read_mib(osc: &DataTarget, text: &str) -> Result<(), Errno> {
    osc.settings.read_bytes_max.set(within_agreed(osc, values::bytes(text, MIB)?)?);
    Ok(())
}

fn set_write_mib(osc: &DataTarget, text: &str) -> Result<(), Errno> {
    osc.settings.write_bytes_max.set(within_agreed(osc, values::bytes(text, MIB)?)?);
    Ok(())
}

fn within_agreed(osc: &DataTarget, bytes: u64) -> Result<u64, Errno> {
    let most = osc.bulk_bytes_agreed().min(BULK_BYTES_MAX as u64);
    values::within(bytes / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES, most)
}

/// The checksums that both sides compute, the one in use in brackets.
fn checksum_types(osc: &DataTarget) -> String {
    let (agreed, used) = osc.checksum_types();
    let used = used.map(Checksum::kind);
    let known = CHECKSUMS.iter().filter(|(_, kind)| agreed.contains(*kind));
    known
        .map(
            |(name, kind)| {
                if used == Some(*kind) { format!("[{name}] ") } else { format!("{name} ") }
            },
        )
        .collect()
}

fn choose_checksum(osc: &DataTarget, text: &str) -> Result<(), Errno> {
    let known = CHECKSUMS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
    let (_, kind) = known.ok_or(Errno::EINVAL)?;
    if !osc.checksum_types().0.contains(*kind) {
        return Err(Errno::EOPNOTSUPP);
    }
    osc.choose_checksum(*kind);
    Ok(())
}
