//! The devices of a mount: `mgc`, `mdc` and `osc`, each the connection to one target.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_client::data::DataTarget;
use sheen_node::rpc::ImportReport;
use sheen_rpc::{OwnTimes, Time};
use sheen_types::limits::XATTR_VALUE_BYTES_MAX;
use sheen_types::{Errno, PAGE_BYTES, Uuid};
use sheen_wire::connect::ConnectFlags;
use sheen_wire::lnet::Portal;

use super::folder::{Folder, Number};
use super::mount::{MountState, device_type};
use super::text::Since;
use super::timing::HasTimes;
use super::{data, features, imports, locks, tables, timing, values};
use sheen_control::api::{Kind, MountTarget};

/// `OBD_MAX_RIF_MAX`: most requests of a device on the wire.
const REQUESTS_MAX: u64 = 512;
/// `CONNECTION_SWITCH_MIN` and `MAX`, between which the longest `idle_timeout` lies.
const IDLE_SECONDS_MIN: u64 = 5;
const IDLE_SECONDS_MAX: u64 = 50;

/// The connection to one target, with the data that goes over it.
pub(super) struct Device {
    pub(super) state: Arc<MountState>,
    pub(super) target: MountTarget,
    pub(super) uuid: Uuid,
    pub(super) osc: Option<Arc<DataTarget>>,
    /// Since when its requests are counted.
    since: Since,
    /// Since when its bulk RPCs are, and their latencies.
    io_since: Since,
    latency_since: Since,
    metadata: Metadata,
}

/// What `md_stats` counts: requests, less those that were made when it was begun anew.
struct Metadata {
    since: Since,
    before: Mutex<[u64; 12]>,
}

impl Device {
    fn report(&self) -> Option<ImportReport> {
        self.state.node.import_of(&self.uuid)
    }

    /// The text that `read` makes of the import as it is now; empty if there is none.
    fn with_report(&self, read: impl Fn(&ImportReport) -> String) -> String {
        self.report().map_or_else(String::new, |report| read(&report))
    }

    /// At most so many requests are on the wire from now on.
    fn limit_requests(&self, count: usize) {
        self.state.node.limit_requests(&self.uuid, count);
        if let Some(osc) = &self.osc {
            osc.io().limit(count as u64);
        }
    }

    fn io_bytes(&self) -> Vec<sheen_types::Samples> {
        self.osc.as_ref().map_or_else(Vec::new, |osc| osc.io().bytes())
    }

    /// What of the counted metadata operations is new since the last beginning.
    pub(super) fn metadata_counts(&self) -> [u64; 12] {
        let now = self.report().map_or([0; 12], |report| imports::metadata_counts(&report));
        let before = *self.metadata.before.lock();
        std::array::from_fn(|at| now[at].saturating_sub(before[at]))
    }

    /// Counts metadata operations anew.
    pub(super) fn clear_metadata(&self) {
        let now = self.report().map_or([0; 12], |report| imports::metadata_counts(&report));
        *self.metadata.before.lock() = now;
        self.metadata.since.restart();
    }
}

impl HasTimes for Device {
    fn own_times(&self) -> Option<OwnTimes> {
        self.report().map(|report| report.own_times)
    }

    fn set_own_times(&self, times: OwnTimes) {
        self.state.node.set_own_times(&self.uuid, times);
    }
}

/// Adds what one device shows.
pub(super) fn add(
    state: &Arc<MountState>,
    target: &MountTarget,
    report: &ImportReport,
) -> Arc<Device> {
    let osc = match target.kind {
        Kind::Mgs => None,
        Kind::Mdt => state.osts.mdt(target.index.into()),
        Kind::Ost => state.osts.ost(target.index.into()),
    };
    if let Some(osc) = &osc {
        osc.io().limit(report.requests_in_flight_max as u64);
    }
    let device = Arc::new(Device {
        state: Arc::clone(state),
        target: target.clone(),
        uuid: report.target.clone(),
        osc,
        since: Since::now(),
        io_since: Since::now(),
        latency_since: Since::now(),
        metadata: Metadata { since: Since::now(), before: Mutex::default() },
    });
    let place = format!("{}.{}", device_type(target.kind), target.device);
    let folder = Folder::new(&state.tree, place);
    add_connection(&folder, &device);
    if target.kind == Kind::Mgs {
        folder.show("ir_state", &device, |it| it.with_report(imports::recovery_state));
    }
    if target.kind != Kind::Mgs {
        add_requests(&folder, &device);
        add_space(&folder, &device);
        data::add(&folder, &device);
    }
    if target.kind == Kind::Mdt {
        add_metadata(&folder, &device);
        add_closes_and_rooms(&folder, state);
    }
    locks::add(state, target);
    device
}

/// Whether closes carry the size to the MDT, and how much room there is in its answers to opens.
fn add_closes_and_rooms(folder: &Folder<'_>, state: &Arc<MountState>) {
    folder.tune(
        "lsom",
        state,
        |it| if it.files.settings().reports_size.get() { "On" } else { "Off" }.to_owned(),
        |it, text| {
            it.files.settings().reports_size.set(values::switch(text)?);
            Ok(())
        },
    );
    let room = Number::<MountState> {
        leaf: "dom_min_repsize",
        parse: values::number_of_any_base,
        range: 0..=XATTR_VALUE_BYTES_MAX as u64,
        read: |it| it.files.reply_rooms().1 as u64,
        write: |it, bytes| it.files.set_inline_room(bytes as usize),
    };
    folder.numbers(state, &[room]);
}

/// What every device shows of its connection.
fn add_connection(folder: &Folder<'_>, device: &Arc<Device>) {
    folder.show("connect_flags", device, |it| {
        it.with_report(|report| features::connect_flags(&report.data))
    });
    timing::add_own(folder, device);
    folder.show("state", device, |it| {
        it.with_report(|report| imports::state(report, &it.state.clock()))
    });
    folder.show("uuid", device, |it| it.with_report(|report| report.client.to_string()));
    let (connection, server) = match device.target.kind {
        Kind::Mgs => ("mgs_conn_uuid", "mgs_server_uuid"),
        Kind::Mdt => ("mds_conn_uuid", "mds_server_uuid"),
        Kind::Ost => ("ost_conn_uuid", "ost_server_uuid"),
    };
    for leaf in ["conn_uuid", connection] {
        folder.show(leaf, device, |it| it.with_report(|report| report.peer.to_string()));
    }
    folder.show(server, device, |it| {
        it.with_report(|report| format!("{}\t{}", report.target, report.state))
    });
    let ping = |it: &Device| it.state.wait(it.state.node.ping_target(&it.uuid));
    folder.tune(
        "ping",
        device,
        // A look at it is a ping, too, and shows nothing but that it was made.
        move |it| ping(it).err().map_or_else(String::new, |error| error.errno().to_string()),
        move |it, _| ping(it).map_err(|error| error.errno()),
    );
    folder.tune(
        "import",
        device,
        |it| {
            let (name, clock) = (&it.target.device, it.state.clock());
            it.with_report(|report| imports::import(name, report, &it.io_bytes(), &clock))
        },
        |it, text| {
            // Only this one of Lustre's orders: `connection=` would name a node to go to.
            if text.trim() != "recover" {
                return Err(Errno::EINVAL);
            }
            it.state.node.reconnect(&it.uuid);
            Ok(())
        },
    );
}

/// What devices show and take whose requests are counted.
fn add_requests(folder: &Folder<'_>, device: &Arc<Device>) {
    folder.tune(
        "active",
        device,
        |it| it.with_report(|report| u8::from(report.is_active).to_string()),
        |it, text| {
            it.state.node.activate(&it.uuid, values::switch(text)?);
            Ok(())
        },
    );
    add_rest(folder, device);
    let portal = match device.target.kind {
        Kind::Mdt => Portal::MDS_REQUEST,
        _ => Portal::OST_REQUEST,
    };
    folder.show("timeouts", device, move |it| {
        it.with_report(|report| imports::timeouts(report, portal.0, &it.state.clock()))
    });
    folder.tune(
        "stats",
        device,
        |it| it.with_report(|report| imports::stats(&it.since, report, &it.io_bytes())),
        |it, _| {
            it.state.node.clear_traffic(&it.uuid);
            if let Some(osc) = &it.osc {
                osc.io().clear_bytes();
            }
            it.since.restart();
            // Metadata operations are counted with all requests, and begin anew with them.
            it.clear_metadata();
            Ok(())
        },
    );
    folder.tune(
        "max_rpcs_in_flight",
        device,
        |it| it.with_report(|report| report.requests_in_flight_max.to_string()),
        |it, text| {
            let (least, count) = match it.target.kind {
                Kind::Mdt => (2, values::number(text)?),
                _ => (1, values::number_of_any_base(text)?),
            };
            let count = values::within(count, least, REQUESTS_MAX)?;
            let modifying = it.report().map_or(0, |report| report.traffic.modifying_max as u64);
            // More changes than requests cannot be: those go down with these.
            if it.target.kind == Kind::Mdt && count <= modifying {
                it.state.node.limit_modifying(&it.uuid, count as usize - 1);
            }
            it.limit_requests(count as usize);
            Ok(())
        },
    );
    folder.show("unstable_stats", device, |it| {
        let bytes = it.report().map_or(0, |report| report.traffic.unstable_bytes);
        let (pages, mib) = (bytes.div_ceil(PAGE_BYTES), bytes >> 20);
        format!("unstable_pages:{pages:>21}\nunstable_mb:{mib:>24}\n")
    });
}

/// When a connection is given up, and when it is made again.
fn add_rest(folder: &Folder<'_>, device: &Arc<Device>) {
    folder.tune(
        "pinger_recov",
        device,
        |it| it.with_report(|report| u8::from(report.auto_reconnects).to_string()),
        |it, text| {
            it.state.node.set_auto_reconnect(&it.uuid, values::switch(text)?);
            Ok(())
        },
    );
    if device.target.kind != Kind::Ost {
        return;
    }
    folder.tune(
        "idle_timeout",
        device,
        |it| it.with_report(|report| report.idle_timeout.as_secs().to_string()),
        |it, text| {
            // What is logged of it is logged always.
            if ["debug", "nodebug"].contains(&text.trim()) {
                return Ok(());
            }
            let timeout = u64::from(it.state.node.time(Time::Timeout));
            let most = timeout.clamp(IDLE_SECONDS_MIN, IDLE_SECONDS_MAX);
            let seconds = values::number_within(text, 0, most)?;
            it.state.node.limit_idleness(&it.uuid, Duration::from_secs(seconds));
            Ok(())
        },
    );
    let (writer, handle) = (Arc::clone(device), tokio::runtime::Handle::current());
    folder.order("idle_connect", move |_| {
        let ping = writer.state.node.ping_target(&writer.uuid);
        handle.block_on(ping).map_err(|error| error.errno())
    });
}

fn add_metadata(folder: &Folder<'_>, device: &Arc<Device>) {
    folder.tune(
        "md_stats",
        device,
        |it| imports::metadata(&it.metadata.since, &it.metadata_counts()),
        |it, _| {
            it.clear_metadata();
            Ok(())
        },
    );
    folder.tune(
        "max_mod_rpcs_in_flight",
        device,
        |it| it.with_report(|report| report.traffic.modifying_max.to_string()),
        set_modifying,
    );
    folder.tune(
        "rpc_stats",
        device,
        |it| {
            let Some(osc) = &it.osc else { return String::new() };
            it.with_report(|report| {
                let modifying = (&report.traffic.modifying[..], report.traffic.modifying_now);
                let pending = osc.grant_dirty_lost()[1] / PAGE_BYTES;
                tables::mdc_rpcs(&it.io_since, modifying, osc.io(), pending)
            })
        },
        |it, _| {
            if let Some(osc) = &it.osc {
                osc.io().clear();
            }
            it.state.node.clear_traffic(&it.uuid);
            it.io_since.restart();
            it.since.restart();
            it.clear_metadata();
            Ok(())
        },
    );
}

/// At least one, and no more than the MDT remembers answers of. Requests of all kinds must be more: they
/// go up with these.
fn set_modifying(it: &Device, text: &str) -> Result<(), Errno> {
    let report = it.report().ok_or(Errno::ENODEV)?;
    let slots = match report.data.maxmodrpcs {
        0 => 1,
        _ if !report.data.flags.contains(ConnectFlags::MULTIMODRPCS) => 1,
        slots => u64::from(slots),
    };
    let count = values::number_within(text, 1, slots.min(REQUESTS_MAX - 1))? as usize;
    if count >= report.requests_in_flight_max {
        it.limit_requests(count + 1);
    }
    it.state.node.limit_modifying(&it.uuid, count);
    Ok(())
}

/// How full the target is, as it said within the last second.
fn add_space(folder: &Folder<'_>, device: &Arc<Device>) {
    type Read = fn(&sheen_control::api::TargetStatfs) -> u64;
    let shown: [(&str, Read); 6] = [
        ("blocksize", |stat| stat.bsize),
        ("kbytestotal", |stat| (stat.blocks * stat.bsize) >> 10),
        ("kbytesfree", |stat| (stat.bfree * stat.bsize) >> 10),
        ("kbytesavail", |stat| (stat.bavail * stat.bsize) >> 10),
        ("filestotal", |stat| stat.files),
        ("filesfree", |stat| stat.ffree),
    ];
    for (leaf, read) in shown {
        folder.show(leaf, device, move |it| {
            it.state.statfs_of(&it.target).map_or_else(String::new, |stat| read(&stat).to_string())
        });
    }
    folder.show("statfs_state", device, |it| {
        it.state.statfs_of(&it.target).map_or_else(String::new, |stat| state_letters(stat.state))
    });
    folder.show("namelen_max", device, |_| sheen_types::limits::NAME_BYTES_MAX.to_string());
    folder.show("maxbytes", device, |it| {
        it.osc.as_ref().map_or_else(String::new, |osc| osc.object_bytes_max().to_string())
    });
}

/// A letter for each thing that a target says of its state; in octal what has no name.
pub(super) fn state_letters(state: u32) -> String {
    const LETTERS: [(u32, char); 9] = [
        (0x1, 'D'),
        (0x2, 'R'),
        (0x4, 'N'),
        (0x8, '?'),
        (0x10, '?'),
        (0x20, 'S'),
        (0x40, 'I'),
        (0x100, 'a'),
        (0x200, 'f'),
    ];
    let said = LETTERS.iter().filter(|(bit, _)| state & bit != 0);
    let mut text: String = said.map(|(_, letter)| letter).collect();
    let rest = LETTERS.iter().fold(state, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        text += &format!("(0{rest:o})");
    }
    text
}

impl Device {
    /// Adds the tables of bulk RPCs that only an OSC has.
    pub(super) fn add_rpc_stats(folder: &Folder<'_>, device: &Arc<Self>) {
        folder.tune(
            "rpc_stats",
            device,
            |it| {
                let Some(osc) = &it.osc else { return String::new() };
                let pending = osc.grant_dirty_lost()[1] / PAGE_BYTES;
                tables::osc_rpcs(&it.io_since, osc.io(), pending)
            },
            |it, _| {
                if let Some(osc) = &it.osc {
                    osc.io().clear();
                }
                it.io_since.restart();
                it.latency_since.restart();
                Ok(())
            },
        );
        folder.tune(
            "io_latency_stats",
            device,
            |it| {
                let osc = it.osc.as_ref();
                osc.map_or_else(String::new, |osc| tables::latencies(&it.latency_since, osc.io()))
            },
            |it, _| {
                if let Some(osc) = &it.osc {
                    osc.io().clear_latency();
                }
                it.latency_since.restart();
                Ok(())
            },
        );
    }

    /// `osc_stats`, `mdc_stats`: bytes that went without a lock of the client's. There are none: it takes
    /// locks for direct IO, too.
    pub(super) fn lockless_text(&self) -> String {
        let header = self.io_since.header_with_colons();
        format!("{header}lockless_write_bytes\t\t0\nlockless_read_bytes\t\t0\n")
    }
}

#[cfg(test)]
mod tests {
    use super::state_letters;

    #[test]
    fn states_have_letters() {
        assert_eq!(state_letters(0), "");
        assert_eq!(state_letters(0x205), "DNf");
        assert_eq!(state_letters(0x1000), "(010000)");
    }
}
