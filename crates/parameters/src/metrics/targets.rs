//! What a target adds to the page.

use std::collections::BTreeMap;

use sheen_assembly::Role;
use sheen_oss::{GrantView, Transfers};
use sheen_target::{RecoveryStatus, RecoveryView};
use sheen_types::{Histogram, Nid, Samples, Unit};

use super::page::Page;
use crate::HostedTarget;
use crate::server;

/// A target's samples, each with what it is and its name.
struct Shown<'a> {
    page: &'a mut Page,
    component: &'static str,
    target: &'a str,
}

/// Adds all that there is of a target.
pub(super) fn add(page: &mut Page, one: &HostedTarget) {
    let component = match one.served.role {
        Role::Mgs(_) => "mgt",
        Role::Mdt(_) => "mdt",
        Role::Ost(_) => "ost",
    };
    let target = one.served.target.name();
    let mut shown = Shown { page, component, target };
    shown.space(one);
    shown.clients(one);
    match &one.served.role {
        Role::Mgs(_) => return,
        Role::Mdt(mdt) => {
            shown.grants(mdt.grant_view());
            shown.osts(mdt);
        }
        Role::Ost(ost) => shown.grants(ost.grant_view()),
    }
    shown.operations(&one.served.target.samples());
    shown.exports(one);
    shown.jobs(one);
    let (reads, writes) = server::transfers(one);
    shown.transfers("read", &reads);
    shown.transfers("write", &writes);
    shown.recovery(&one.served.target.view().recovery);
}

impl Shown<'_> {
    fn add(&mut self, name: &str, value: u64) {
        self.page.add(name, &[("component", self.component), ("target", self.target)], value);
    }

    /// With a label between the two that all have.
    fn add_with(&mut self, name: &str, label: (&str, &str), value: u64) {
        let labels = [("component", self.component), label, ("target", self.target)];
        self.page.add(name, &labels, value);
    }

    fn space(&mut self, one: &HostedTarget) {
        // A store that failed says so by the target's health.
        let Ok(space) = one.served.target.store().space() else { return };
        self.add("lustre_available_kilobytes", space.available >> 10);
        self.add("lustre_free_kilobytes", space.free >> 10);
        self.add("lustre_capacity_kilobytes", space.total >> 10);
        self.add("lustre_inodes_free", space.objects_free);
        self.add("lustre_inodes_maximum", space.objects);
    }

    fn clients(&mut self, one: &HostedTarget) {
        let target = &one.served.target;
        let exports = target.exports().len() as u64;
        self.add("lustre_exports_total", exports);
        if self.component == "mdt" {
            self.add("lustre_connected_clients", exports);
        }
        let locks = target.namespace().gauges();
        self.add("lustre_lock_count_total", server::lock_count(&locks));
        self.add("lustre_lock_timeout_total", locks.timeouts);
        self.add("sheen_evictions_total", target.evictions());
    }

    fn grants(&mut self, grants: GrantView) {
        self.add("lustre_exports_granted_total", grants.total);
        self.add("lustre_exports_dirty_total", grants.dirty);
        self.add("lustre_exports_pending_total", grants.pending);
    }

    fn osts(&mut self, mdt: &sheen_mds::Mdt) {
        let (fsname, own) = self.target.rsplit_once('-').unwrap_or((self.target, ""));
        for ost in mdt.osts() {
            let device = format!("{fsname}-OST{:04x}-osc-{own}", ost.index);
            let is_active = u64::from(server::is_active(&ost));
            let labels = [("component", "ost"), ("target", device.as_str())];
            self.page.add("lustre_osp_active", &labels, is_active);
        }
    }

    fn operations(&mut self, all: &[Samples]) {
        for samples in all {
            let operation = ("operation", samples.line.name);
            match direction(samples) {
                Some(direction) => self.bytes(&format!("lustre_{direction}"), direction, samples),
                None => {
                    self.add_with("lustre_stats_total", operation, samples.count);
                    self.add_with("lustre_stats_time_total", operation, samples.sum);
                    self.add_with("lustre_stats_time_min", operation, samples.min);
                    self.add_with("lustre_stats_time_max", operation, samples.max);
                }
            }
        }
    }

    fn bytes(&mut self, stem: &str, direction: &str, samples: &Samples) {
        let operation = ("operation", direction);
        for (end, value) in sizes(samples) {
            self.add_with(&format!("{stem}_{end}"), operation, value);
        }
    }

    /// By node, as in the parameter tree: a node may have several clients.
    fn exports(&mut self, one: &HostedTarget) {
        let mut nodes: BTreeMap<Nid, Vec<Samples>> = BTreeMap::new();
        for export in one.served.target.exports() {
            nodes.entry(export.nid()).or_default().extend(export.samples());
        }
        for (nid, samples) in nodes {
            let nid = nid.to_string();
            for samples in Samples::joined(samples) {
                let labels = [
                    ("component", self.component),
                    ("name", samples.line.name),
                    ("nid", nid.as_str()),
                    ("target", self.target),
                    ("units", samples.line.unit.name()),
                ];
                self.page.add("lustre_client_export_stats", &labels, samples.count);
                match samples.line.unit {
                    Unit::Bytes => {
                        self.page.add("lustre_client_export_bytes_total", &labels, samples.sum);
                    }
                    _ => {
                        let name = "lustre_client_export_milliseconds_total";
                        self.page.add(name, &labels, samples.sum / 1000);
                    }
                }
            }
        }
    }

    fn jobs(&mut self, one: &HostedTarget) {
        for job in one.served.target.jobs() {
            // Two names that differ only in what is no UTF-8 must not look the same.
            let jobid = match String::from_utf8(job.name) {
                Ok(name) => name,
                Err(error) => server::escaped_job(error.as_bytes()),
            };
            let (component, target) = (self.component, self.target);
            for (samples, _) in job.lines.iter().filter(|(samples, _)| samples.count > 0) {
                let labels = [("component", component), ("jobid", &jobid), ("target", target)];
                match direction(samples) {
                    Some(direction) => {
                        for (end, value) in sizes(samples) {
                            let name = format!("lustre_job_{direction}_{end}");
                            self.page.add(&name, &labels, value);
                        }
                    }
                    None => {
                        let [component, jobid, target] = labels;
                        let operation = ("operation", samples.line.name);
                        let labels = [component, jobid, operation, target];
                        self.page.add("lustre_job_stats_total", &labels, samples.count);
                    }
                }
            }
        }
    }

    fn transfers(&mut self, direction: &str, transfers: &Transfers) {
        type Shape<'a> = (&'a str, &'a [u64; Histogram::CLASSES], fn(usize) -> u64);
        let histograms: [Shape<'_>; 6] = [
            ("lustre_pages_per_bulk_rw_total", &transfers.pages, power),
            ("lustre_discontiguous_pages_total", &transfers.gaps, itself),
            ("lustre_dio_frags", &transfers.accesses, itself),
            ("lustre_disk_io", &transfers.in_flight, itself),
            ("lustre_io_time_milliseconds_total", &transfers.milliseconds, power),
            ("lustre_disk_io_total", &transfers.bytes, power),
        ];
        for (name, counts, size_of) in histograms {
            for (class, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let size = size_of(class).to_string();
                let labels = [
                    ("component", self.component),
                    ("operation", direction),
                    ("size", size.as_str()),
                    ("target", self.target),
                ];
                self.page.add(name, &labels, *count);
            }
        }
    }

    fn recovery(&mut self, recovery: &RecoveryView) {
        let status = match recovery.status {
            RecoveryStatus::Complete => 0,
            RecoveryStatus::Inactive => 1,
            RecoveryStatus::WaitingForMdts => 2,
            RecoveryStatus::WaitingForClients => 3,
            RecoveryStatus::Recovering => 4,
        };
        let completed =
            recovery.connected.saturating_sub(recovery.replaying + recovery.replaying_locks);
        let kind = self.component.to_uppercase();
        let mut add = |name: &str, value: u64| {
            self.page.add(name, &[("kind", &kind), ("target", self.target)], value);
        };
        add("recovery_status", status);
        if recovery.status == RecoveryStatus::Inactive {
            return;
        }
        add("recovery_status_completed_clients", completed as u64);
        add("recovery_status_connected_clients", recovery.connected as u64);
        add("recovery_status_evicted_clients", recovery.evicted as u64);
        add("recovery_status_total_clients", recovery.known as u64);
        add("recovery_status_duration_seconds", recovery.duration.as_secs());
        add("recovery_status_time_remaining_seconds", recovery.remaining.as_secs());
    }
}

/// Which way a line's bytes go, if it is about bytes.
fn direction(samples: &Samples) -> Option<&'static str> {
    match samples.line.name {
        "read_bytes" => Some("read"),
        "write_bytes" => Some("write"),
        _ => None,
    }
}

/// The samples of a line of bytes: the end of the sample's name, and its value.
fn sizes(samples: &Samples) -> [(&'static str, u64); 4] {
    [
        ("samples_total", samples.count),
        ("bytes_total", samples.sum),
        ("minimum_size_bytes", samples.min),
        ("maximum_size_bytes", samples.max),
    ]
}

fn power(class: usize) -> u64 {
    1 << class
}

fn itself(class: usize) -> u64 {
    class as u64
}
