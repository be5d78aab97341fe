//! How long requests took, by the service that they came to and by what they asked for: the lines
//! below the first ones of Lustre's `ost.OSS.ost_io.stats` and the like.
//!
//! A request costs five relaxed additions; no lock. A portal that requests come to costs some 4
//! KiB.

use std::sync::{LazyLock, OnceLock};

use sheen_types::{CounterLine, Counters, Samples};
use sheen_wire::ldlm::{LockFlags as WireFlags, LockType};
use sheen_wire::lnet::Portal;
use sheen_wire::messages::{Kind, Request, TABLE};

/// Portals are numbered below this.
const PORTALS: usize = 64;

/// Lock requests, which Lustre distinguishes by more than the opcode; they come first there.
const LOCKS: [&str; 5] = [
    "ldlm_glimpse_enqueue",
    "ldlm_plain_enqueue",
    "ldlm_extent_enqueue",
    "ldlm_flock_enqueue",
    "ldlm_ibits_enqueue",
];

/// The locks, then the message table. Made once per process, and as such never freed.
static LINES: LazyLock<Vec<CounterLine>> = LazyLock::new(|| {
    let name = |kind: Kind| -> &'static str { Box::leak(name_of(kind).into_boxed_str()) };
    let locks = LOCKS.into_iter().map(CounterLine::time);
    locks.chain(TABLE.iter().map(|format| CounterLine::time(name(format.kind)))).collect()
});

/// As Lustre calls it: the opcode in small letters, but for some.
fn name_of(kind: Kind) -> String {
    let name = match kind {
        Kind::OstRead => "ost_read",
        Kind::OstWrite => "ost_write",
        Kind::OstSetGrantInfo | Kind::OstSetInfo => "ost_set_info",
        Kind::OstGetInfoLastId | Kind::OstGetInfoLastFid | Kind::OstGetInfoFiemap => "ost_get_info",
        Kind::MdsGetattrName => "mds_getattr_lock",
        Kind::MdsReintCreate | Kind::MdsReintCreateSym => "mds_reint_create",
        Kind::MdsCloseIntent => "mds_close",
        Kind::MdsSetInfo => "mds_set_info",
        Kind::QuotaDqacq => "quota_acquire",
        Kind::LlogOriginHandleCreate => "llog_origin_handle_open",
        Kind::LdlmIntentOpen
        | Kind::LdlmIntentCreate
        | Kind::LdlmIntentGetattr
        | Kind::LdlmIntentGetxattr
        | Kind::LdlmIntentLayout
        | Kind::LdlmIntentQuota
        | Kind::LdlmIntentBasic => "ldlm_ibits_enqueue",
        _ => return kind.format().name.to_lowercase(),
    };
    name.to_owned()
}

/// The line of a request.
pub(crate) fn line_of(request: &Request) -> usize {
    let any = LOCKS.len() + request.kind() as usize;
    let Request::LdlmEnqueue(enqueue) = request else { return any };
    let is_glimpse = enqueue.dlm_req.flags.contains(WireFlags::HAS_INTENT);
    match enqueue.dlm_req.desc.resource.kind {
        LockType::EXTENT if is_glimpse => 0,
        LockType::PLAIN => 1,
        LockType::EXTENT => 2,
        LockType::FLOCK => 3,
        LockType::IBITS => 4,
        _ => any,
    }
}

/// What a target has counted, by portal.
pub(crate) struct Services([OnceLock<Counters>; PORTALS]);

impl Services {
    pub(crate) fn new() -> Self {
        Self([const { OnceLock::new() }; PORTALS])
    }

    /// A request of this line, which came to `portal`, took so many microseconds.
    pub(crate) fn count(&self, portal: Portal, line: usize, time_us: u64) {
        if let Some(at) = self.0.get(portal.0 as usize) {
            at.get_or_init(|| Counters::new(&LINES)).add(line, time_us);
        }
    }

    /// The lines with samples of requests to `portal`; lines of one name are one.
    pub(crate) fn samples(&self, portal: Portal) -> Vec<Samples> {
        let counters = self.0.get(portal.0 as usize).and_then(OnceLock::get);
        Samples::joined(counters.map(Counters::samples).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Lustre's table has them, of those that come to our servers; what it counts under more
    /// than the opcode included, and what it has no line for last.
    #[test]
    fn lines_are_called_as_in_lustre() {
        const NAMES: &str = "\
            ost_getattr ost_setattr ost_read ost_write ost_create ost_destroy ost_get_info \
            ost_connect ost_disconnect ost_punch ost_statfs ost_sync ost_set_info ost_quotactl \
            ost_ladvise ost_fallocate ost_seek mds_getattr mds_getattr_lock mds_close mds_reint \
            mds_readpage mds_connect mds_disconnect mds_get_root mds_statfs mds_sync mds_set_info \
            mds_quotactl mds_getxattr mds_get_info mds_hsm_state_get mds_hsm_state_set \
            mds_hsm_action mds_hsm_progress mds_hsm_request mds_hsm_ct_register \
            mds_hsm_ct_unregister mds_swap_layouts mds_rmfid mds_batch mds_hsm_data_version \
            ldlm_enqueue ldlm_convert ldlm_cancel ldlm_bl_callback ldlm_cp_callback \
            ldlm_gl_callback ldlm_set_info mgs_connect mgs_disconnect mgs_target_reg mgs_set_info \
            mgs_config_read obd_ping llog_origin_handle_open llog_origin_handle_next_block \
            llog_origin_handle_read_header llog_origin_handle_prev_block quota_acquire seq_query \
            fld_query fld_read out_update ldlm_glimpse_enqueue ldlm_plain_enqueue ldlm_extent_enqueue \
            ldlm_flock_enqueue ldlm_ibits_enqueue mds_reint_setattr mds_reint_create \
            mds_reint_link mds_reint_unlink mds_reint_rename mds_reint_open mds_reint_setxattr \
            mds_reint_resync mds_fid2path mds_reint_migrate mds_reint_rmentry";
        for line in LINES.iter() {
            assert!(NAMES.split_whitespace().any(|name| name == line.name), "{}", line.name);
        }
    }

    #[test]
    fn lines_of_one_name_are_one() {
        let services = Services::new();
        let place = |kind: Kind| LOCKS.len() + kind as usize;
        services.count(Portal::MDS_REQUEST, 4, 10);
        services.count(Portal::MDS_REQUEST, place(Kind::LdlmIntentOpen), 30);
        services.count(Portal::MDS_REQUEST, place(Kind::ObdPing), 1);
        services.count(Portal(4_000_000), 0, 1);
        let samples = services.samples(Portal::MDS_REQUEST);
        let samples: Vec<_> =
            samples.iter().map(|one| (one.line.name, one.count, one.sum)).collect();
        assert_eq!(samples, [("ldlm_ibits_enqueue", 2, 40), ("obd_ping", 1, 1)]);
        assert!(services.samples(Portal::OST_IO).is_empty());
        assert!(services.samples(Portal(4_000_000)).is_empty());
    }
}
