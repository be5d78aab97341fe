//! All families of the page. Names, labels and what the numbers mean are lustrefs-exporter's wherever it
//! has them, so that its dashboards work; those that it has not begin with `sheen_`.

use super::page::Family;
use super::page::Type::{Counter, Gauge, Unknown};

const fn family(name: &'static str, kind: super::page::Type, help: &'static str) -> Family {
    Family { name, kind, help }
}

/// In the order of the page.
pub(super) static FAMILIES: [Family; 67] = [
    family(
        "lustre_health_healthy",
        Gauge,
        "1 if every target of this process takes changes, else 0.",
    ),
    family("lustre_mem_used", Gauge, "Bytes of memory that this process holds."),
    family("lustre_available_kilobytes", Gauge, "KiB of a target's store that may still be used."),
    family("lustre_free_kilobytes", Gauge, "KiB of a target's store that are not used."),
    family("lustre_capacity_kilobytes", Gauge, "KiB of a target's store in all."),
    family("lustre_inodes_free", Gauge, "Objects that may still be created on a target."),
    family("lustre_inodes_maximum", Gauge, "Objects that a target could have in all."),
    family("lustre_exports_total", Gauge, "Clients of a target, other servers included."),
    family("lustre_connected_clients", Gauge, "Clients of an MDT that are connected."),
    family(
        "lustre_exports_granted_total",
        Gauge,
        "Bytes of space promised to the clients of a target.",
    ),
    family(
        "lustre_exports_dirty_total",
        Gauge,
        "Bytes that clients have accepted and not sent yet, as they said last.",
    ),
    family(
        "lustre_exports_pending_total",
        Gauge,
        "Bytes of the writes that a target is carrying out.",
    ),
    family("lustre_lock_count_total", Gauge, "Locks that clients hold or wait for."),
    family("lustre_lock_timeout_total", Counter, "Lock holders that did not answer in time."),
    family("sheen_evictions_total", Counter, "Clients evicted since the target's start."),
    family("lustre_stats_total", Counter, "Operations that a target has done."),
    family("lustre_stats_time_total", Counter, "Microseconds that these operations took together."),
    family("lustre_stats_time_min", Gauge, "Microseconds of the shortest of these operations."),
    family("lustre_stats_time_max", Gauge, "Microseconds of the longest of these operations."),
    family("lustre_read_samples_total", Counter, "Transfers of bytes sent."),
    family("lustre_read_bytes_total", Counter, "Bytes sent."),
    family("lustre_read_minimum_size_bytes", Gauge, "Bytes of the smallest transfer sent."),
    family("lustre_read_maximum_size_bytes", Gauge, "Bytes of the largest transfer sent."),
    family("lustre_write_samples_total", Counter, "Transfers of bytes taken in."),
    family("lustre_write_bytes_total", Counter, "Bytes taken in."),
    family("lustre_write_minimum_size_bytes", Gauge, "Bytes of the smallest transfer taken in."),
    family("lustre_write_maximum_size_bytes", Gauge, "Bytes of the largest transfer taken in."),
    family("lustre_client_export_stats", Unknown, "Operations done for a client's node."),
    family(
        "lustre_client_export_milliseconds_total",
        Counter,
        "Milliseconds that these operations took together.",
    ),
    family("lustre_client_export_bytes_total", Counter, "Bytes moved for a client's node."),
    family("lustre_job_stats_total", Counter, "Operations done for a job."),
    family("lustre_job_read_samples_total", Counter, "Transfers of bytes sent to a job."),
    family("lustre_job_read_bytes_total", Counter, "Bytes sent to a job."),
    family(
        "lustre_job_read_minimum_size_bytes",
        Gauge,
        "Bytes of the smallest transfer sent to a job.",
    ),
    family(
        "lustre_job_read_maximum_size_bytes",
        Gauge,
        "Bytes of the largest transfer sent to a job.",
    ),
    family("lustre_job_write_samples_total", Counter, "Transfers of bytes taken from a job."),
    family("lustre_job_write_bytes_total", Counter, "Bytes taken from a job."),
    family(
        "lustre_job_write_minimum_size_bytes",
        Gauge,
        "Bytes of the smallest transfer taken from a job.",
    ),
    family(
        "lustre_job_write_maximum_size_bytes",
        Gauge,
        "Bytes of the largest transfer taken from a job.",
    ),
    family("lustre_pages_per_bulk_rw_total", Counter, "Transfers by their pages."),
    family("lustre_discontiguous_pages_total", Counter, "Transfers by how often they skip bytes."),
    family("lustre_dio_frags", Unknown, "Transfers by how many accesses to the store they took."),
    family("lustre_disk_io", Unknown, "Accesses to the store by how many ran at once."),
    family(
        "lustre_io_time_milliseconds_total",
        Counter,
        "Accesses to the store by the milliseconds they took.",
    ),
    family("lustre_disk_io_total", Unknown, "Accesses to the store by their bytes."),
    family(
        "lustre_mds_mdt_stats",
        Gauge,
        "Requests to the service mdt, and samples of its own lines.",
    ),
    family(
        "lustre_mds_mdt_readpage_stats",
        Gauge,
        "Requests to the service mdt_readpage, and samples of its own lines.",
    ),
    family(
        "lustre_mds_mdt_io_stats",
        Gauge,
        "Requests to the service mdt_io, and samples of its own lines.",
    ),
    family(
        "lustre_mds_mdt_seqm_stats",
        Gauge,
        "Requests to the service mdt_seqm, and samples of its own lines.",
    ),
    family(
        "lustre_mds_mdt_seqs_stats",
        Gauge,
        "Requests to the service mdt_seqs, and samples of its own lines.",
    ),
    family(
        "lustre_mds_mdt_fld_stats",
        Gauge,
        "Requests to the service mdt_fld, and samples of its own lines.",
    ),
    family(
        "lustre_mds_mdt_out_stats",
        Gauge,
        "Requests to the service mdt_out, and samples of its own lines.",
    ),
    family(
        "lustre_oss_ost_stats",
        Gauge,
        "Requests to the service ost, and samples of its own lines.",
    ),
    family(
        "lustre_oss_ost_create_stats",
        Gauge,
        "Requests to the service ost_create, and samples of its own lines.",
    ),
    family(
        "lustre_oss_ost_io_stats",
        Gauge,
        "Requests to the service ost_io, and samples of its own lines.",
    ),
    family(
        "lustre_ldlm_canceld_stats",
        Gauge,
        "Requests to the service ldlm_canceld, and samples of its own lines.",
    ),
    family(
        "sheen_service_microseconds_total",
        Counter,
        "Microseconds that requests to a service took or waited.",
    ),
    family("sheen_requests_running", Gauge, "Requests that are being carried out."),
    family("sheen_requests_waiting", Gauge, "Requests that wait for other requests to end."),
    family("lustre_osp_active", Gauge, "1 if the MDT is connected to the OST, else 0."),
    family(
        "recovery_status",
        Gauge,
        "Recovery of a target: 0 complete, 1 inactive, 3 waiting for clients, 4 recovering.",
    ),
    family("recovery_status_completed_clients", Gauge, "Clients that are through with recovery."),
    family("recovery_status_connected_clients", Gauge, "Clients that have come back for recovery."),
    family("recovery_status_evicted_clients", Gauge, "Clients that recovery gave up."),
    family("recovery_status_total_clients", Gauge, "Clients that recovery knew."),
    family(
        "recovery_status_duration_seconds",
        Gauge,
        "Seconds that recovery took, or has taken so far.",
    ),
    family(
        "recovery_status_time_remaining_seconds",
        Gauge,
        "Seconds that recovery may still take.",
    ),
];
