//! The names of a Lustre server: each is there, or `docs/COMPAT.md` says why not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(240);
const SEEN: Duration = Duration::from_secs(60);
/// The part of the document that is read.
const HEADING: &str = "## Parameters of servers that do not apply";

/// Where a server of Lustre 2.17 has parameters, and their names, as its source registers them.
const NAMES: [(&str, &str); 25] = [
    (
        "mdt.sheen-MDT0000",
        "async_commit_count at_history at_max at_min at_unhealthy_factor checksum_dump \
         checksum_t10pi_enforce checksum_type commit_on_sharing dir_restripe_nsonly \
         dir_split_count dir_split_delta dom_lock dom_read_open enable_cap_mask \
         enable_chprojid_gid enable_dir_auto_split enable_dir_migration enable_dir_restripe \
         enable_dmv_implicit_inherit enable_dmv_xattr enable_foreign_dir \
         enable_foreign_dir_gid enable_parallel_rename_crossdir enable_parallel_rename_dir \
         enable_parallel_rename_file enable_pin_gid enable_remote_dir enable_remote_dir_gid \
         enable_remote_rename enable_remote_subdir_mount enable_rename_trylock \
         enable_resource_id_check enable_strict_som enable_striped_dir evict_client \
         evict_tgt_nids eviction_count force_sync grant_check_threshold \
         grant_compat_disable gss.srpc_serverctx hash_stats hsm.actions \
         hsm.active_request_timeout hsm.active_requests hsm.agents hsm.archive_count \
         hsm.default_archive_id hsm.grace_delay hsm.group_request_mask hsm.loop_period \
         hsm.max_requests hsm.other_request_mask hsm.policy \
         hsm.remove_archive_on_last_unlink hsm.remove_count hsm.restore_count \
         hsm.user_request_mask hsm_control identity_acquire_expire identity_expire \
         identity_flush identity_info identity_int_acquire_expire identity_int_expire \
         identity_int_flush identity_upcall instance ir_factor job_cleanup_interval \
         job_stats job_xattr ldlm_enqueue_min local_recovery max_mod_rpcs_in_flight \
         md_stats migrate_hsm_allowed no_create nosquash_nids num_exports readonly \
         recovery_reconnect_histogram recovery_reconnect_top recovery_stale_clients \
         recovery_status recovery_time_hard recovery_time_soft rename_stats root_squash \
         site_stats sync_count tot_dirty tot_granted tot_pending uuid",
    ),
    (
        "mdt.sheen-MDT0000.exports",
        "CLIENT.export CLIENT.fmd_count CLIENT.grant_cur CLIENT.grant_dirty \
         CLIENT.grant_pending CLIENT.hash CLIENT.ldlm_stats CLIENT.nodemap \
         CLIENT.open_files CLIENT.reconnect_delay CLIENT.reply_data CLIENT.stats \
         CLIENT.uuid clear",
    ),
    (
        "obdfilter.sheen-OST0000",
        "access_log_mask access_log_size at_history at_max at_min atime_diff blocksize \
         brw_size checksum_dump checksum_t10pi_enforce checksum_type degraded \
         enable_resource_id_check enable_resource_id_repair evict_client eviction_count \
         failure_domain filesfree filestotal fstype grant_check_threshold \
         grant_compat_disable grant_precreate gss.srpc_serverctx instance ir_factor \
         job_cleanup_interval job_stats kbytesavail kbytesfree kbytestotal last_id \
         ldlm_enqueue_min lfsck_layout lfsck_speed_limit lfsck_verify_pfid no_create \
         no_precreate num_exports precreate_batch readonly recovery_reconnect_histogram \
         recovery_reconnect_top recovery_stale_clients recovery_status recovery_time_hard \
         recovery_time_soft resource_id_repair_queue_count seqs_allocated site_stats \
         soft_sync_limit stats sync_journal tot_dirty tot_granted tot_pending uuid",
    ),
    (
        "obdfilter.sheen-OST0000.exports",
        "CLIENT.export CLIENT.fmd_count CLIENT.grant_cur CLIENT.grant_dirty \
         CLIENT.grant_pending CLIENT.hash CLIENT.ldlm_stats CLIENT.nodemap \
         CLIENT.reconnect_delay CLIENT.reply_data CLIENT.stats CLIENT.uuid clear",
    ),
    (
        "osd-sheen.sheen-OST0000",
        "auto_scrub blocksize brw_stats enable_projid_xattr extent_bytes_allocation \
         extents_dense fallocate_zero_blocks filesfree filestotal force_sync fstype \
         full_scrub_ratio full_scrub_threshold_rate fzap_blockshift index_backup \
         index_in_idif inflight_io_log2 io_latency_stats kbytesavail kbytesfree kbytestotal \
         maxbytes mntdev namelen_max nonrotational oi_scrub pdo quota_slave.enabled \
         quota_slave.force_reint quota_slave.info quota_slave.root_prj_enable \
         quota_slave.timeout read_cache_enable readcache_max_filesize readcache_max_io_mb \
         statfs_state stats sync_on_lseek uuid writethrough_cache_enable \
         writethrough_max_io_mb",
    ),
    (
        "lod.sheen-MDT0000-mdtlov",
        "activeobd blocksize desc_uuid dist_txn_check_space dom_stripesize \
         dom_stripesize_cur_kb dom_stripesize_max_kb dom_threshold_free_mb filesfree \
         filestotal kbytesavail kbytesfree kbytestotal lmv_failout max_mdt_stripecount \
         max_stripecount max_stripes_per_mdt maxbytes mdt_activeobd mdt_hash mdt_numobd \
         mdt_obd mdt_qos_maxage mdt_qos_prio_free mdt_qos_threshold_rr mdt_stripecount \
         mdt_stripetype mirror_count_max namelen_max numobd pool.POOL.spill_hit \
         pool.POOL.spill_is_active pool.POOL.spill_status pool.POOL.spill_target \
         pool.POOL.spill_threshold_pct qos_maxage qos_mdt_weights qos_ost_weights \
         qos_prio_free qos_threshold_rr statfs_state stripecount stripeoffset stripesize \
         stripetype target_obd uuid",
    ),
    (
        "mdd.sheen-MDT0000",
        "append_pool append_stripe_count atime_diff changelog_current_mask \
         changelog_deniednext changelog_free_space_gc changelog_gc changelog_mask \
         changelog_max_idle_indexes changelog_max_idle_time changelog_min_free_cat_entries \
         changelog_min_gc_interval changelog_size changelog_users enable_shard_pfid \
         lfsck_async_windows lfsck_layout lfsck_namespace lfsck_speed_limit sync_permission \
         uuid",
    ),
    (
        "osp.sheen-OST0000-osc-MDT0000",
        "active blocksize connect_flags create_count destroys_in_flight error_list \
         filesfree filestotal force_sync import kbytesavail kbytesfree kbytestotal \
         lfsck_max_rpcs_in_flight max_create_count max_mod_rpcs_in_flight \
         max_rpcs_in_flight max_rpcs_in_progress max_sync_changes maxage maxbytes \
         namelen_max old_sync_processed ost_conn_uuid ost_server_uuid ping \
         prealloc_force_new_seq prealloc_last_id prealloc_last_seq prealloc_next_id \
         prealloc_next_seq prealloc_reserved prealloc_status reserved_ino_high \
         reserved_ino_low reserved_mb_high reserved_mb_low rpc_stats state statfs_state \
         stats sync_changes sync_current_llog sync_in_flight sync_in_progress timeouts uuid",
    ),
    (
        "mgs.MGS",
        "at_history at_max at_min at_unhealthy_factor evict_client eviction_count \
         filesystems fstype gss.srpc_serverctx hash_stats ir_timeout ldlm_enqueue_min \
         live.sheen mntdev num_exports srpc_rules uuid",
    ),
    (
        "mgs.MGS.exports",
        "CLIENT.export CLIENT.hash CLIENT.nodemap CLIENT.reply_data CLIENT.uuid clear",
    ),
    (
        "ldlm",
        "cancel_unused_locks_before_replay dump_granted_max dump_namespaces \
         ldlm_enqueue_min lock_granted_count lock_limit_count lock_limit_mb \
         lock_reclaim_threshold_count lock_reclaim_threshold_mb",
    ),
    (
        "ldlm.namespaces.mdt-sheen-MDT0000_UUID",
        "contended_locks contention_events contention_hold_seconds contention_seconds \
         ctime_age_limit dirty_age_limit dump_stack_on_error early_lock_cancel \
         lock_cache_policy lock_count lock_lru_hits lock_lru_priv_hits lock_timeouts \
         lock_unused_count lock_unused_priv_count lru_cancel_batch lru_max_age \
         lru_priv_ratio_limit lru_priv_score_threshold lru_size max_nolock_bytes \
         max_parallel_ast ns_recalc_pct pool.cancel_rate pool.client_lock_volume \
         pool.grant_plan pool.grant_rate pool.grant_speed pool.granted pool.limit \
         pool.lock_volume_factor pool.recalc_period pool.recalc_time \
         pool.server_lock_volume pool.state pool.stats resource_count",
    ),
    ("mds.MDS", "uuid"),
    ("ost.OSS", "uuid"),
    (
        "mds.MDS.mdt",
        "nrs_crrn_quantum nrs_delay_max nrs_delay_min nrs_delay_pct nrs_orr_offset_type \
         nrs_orr_quantum nrs_orr_supported nrs_tbf_rule nrs_trr_offset_type \
         nrs_trr_quantum nrs_trr_supported",
    ),
    (
        "ost.OSS.ost_io",
        "nrs_crrn_quantum nrs_delay_max nrs_delay_min nrs_delay_pct nrs_orr_offset_type \
         nrs_orr_quantum nrs_orr_supported nrs_tbf_rule nrs_trr_offset_type \
         nrs_trr_quantum nrs_trr_supported",
    ),
    (
        "mgc.MGC_NID",
        "at_history at_max at_min conn_uuid connect_flags dynamic_nids import ir_state \
         ldlm_enqueue_min mgs_conn_uuid mgs_server_uuid ping state uuid",
    ),
    ("lwp.sheen-MDT0000-lwp-OST0000", "connect_flags import mdt_server_uuid state timeouts uuid"),
    ("nodemap", "active"),
    (
        "nodemap.default",
        "admin_nodemap audit_mode banlist child_raise_privileges deny_mount deny_unknown \
         enable_cap_mask exports fileset forbid_encryption id map_mode rbac \
         readonly_mount squash_gid squash_projid squash_uid trusted_nodemap",
    ),
    ("sptlrpc", "encrypt_page_pools page_pools"),
    ("qmt.sheen-QMT0000", "dt-0x0.info dt-0x0.soft_least_qunit md-0x0.info"),
    (
        "seq",
        "ctl-sheen-MDT0000.server ctl-sheen-MDT0000.space ctl-sheen-MDT0000.width \
         srv-sheen-MDT0000.fid srv-sheen-MDT0000.server srv-sheen-MDT0000.space \
         srv-sheen-MDT0000.width",
    ),
    (
        "fld",
        "cli-sheen-MDT0000.cache_flush cli-sheen-MDT0000.hash cli-sheen-MDT0000.targets \
         srv-sheen-MDT0000.fldb",
    ),
    (
        "",
        "allow_register at_early_margin at_extra at_history at_max at_min \
         at_unhealthy_factor bulk_timeout checksum_speed debug_peer_on_timeout \
         debug_raw_pointers devices dump_on_eviction dump_on_timeout enable_fname_encoding \
         enable_health_write enable_stats_header expected_clients health_check jobid_name \
         jobid_this_session jobid_var lbug_on_eviction ldlm_timeout lnet_memused \
         max_dirty_mb memused memused_max no_transno \
         ping_interval pinger timeout version",
    ),
];

/// The services of a server, which have the same names each.
const SERVICES: [&str; 16] = [
    "ldlm.services.ldlm_canceld",
    "ldlm.services.ldlm_cbd",
    "mds.MDS.mdt",
    "mds.MDS.mdt_fld",
    "mds.MDS.mdt_io",
    "mds.MDS.mdt_out",
    "mds.MDS.mdt_readpage",
    "mds.MDS.mdt_seqm",
    "mds.MDS.mdt_seqs",
    "mds.MDS.mdt_setattr",
    "mgs.MGS.mgs",
    "ost.OSS.ost",
    "ost.OSS.ost_create",
    "ost.OSS.ost_io",
    "ost.OSS.ost_out",
    "ost.OSS.ost_seq",
];

const OF_SERVICE: &str = "enable_pmqos high_priority_ratio nrs_policies \
    pmqos_default_duration_usec pmqos_latency_max_usec pmqos_use_stats_for_duration \
    req_buffer_history_len req_buffer_history_max req_buffers_max req_history stats threads_max \
    threads_min threads_started timeouts";

/// All names of a Lustre server, in a file system of ours. A real server has them once for each target.
fn lustres(nid: &str) -> Vec<String> {
    let services = SERVICES.map(|service| (service, OF_SERVICE));
    let all = NAMES.iter().chain(&services);
    let of_place = all.flat_map(|(place, names)| {
        names.split_whitespace().map(move |name| match *place {
            "" => name.to_owned(),
            place => format!("{place}.{name}"),
        })
    });
    of_place.map(|name| name.replace("MGC_NID", &format!("MGC{nid}"))).collect()
}

/// The patterns of the table's first column.
fn excused() -> Outcome<Vec<String>> {
    let part = part()?;
    let column = part.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = column.flat_map(|cell| cell.split('`').filter(|name| !name.trim().is_empty()));
    Ok(names.map(str::to_owned).collect())
}

/// The part of the document with the table.
fn part() -> Outcome<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMPAT.md");
    let text = fs::read_to_string(path).context("COMPAT.md")?;
    let part = text.split(HEADING).nth(1).ok_or("no such part")?;
    Ok(part.split("\n## ").next().unwrap_or_default().to_owned())
}

/// Whether `name` matches a pattern of the table, whose stars match any letters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(head) else { return false };
    (0..=rest.len()).any(|from| rest.is_char_boundary(from) && matches(tail, &rest[from..]))
}

fn all_are_there_or_excused(cluster: &Cluster) -> Outcome {
    let excused = excused()?;
    let listed = cluster.must(&["lctl", "list_param", "-R", "*"])?;
    let there: BTreeSet<&str> = listed.lines().collect();
    let nid = there.iter().find_map(|line| line.strip_prefix("mdt.")?.strip_suffix(".uuid"));
    let nid = nid.and_then(|line| line.split("exports.").nth(1)).ok_or("no client")?;
    let server = cluster.must(&["lctl", "get_param", "-n", "mdc.*.conn_uuid"])?;
    let server = server.trim().to_owned();
    let mut needed = BTreeSet::new();
    let (mut shown, mut left_out) = (0, 0);
    for name in lustres(&server) {
        let is_there = there.contains(&*name.replace("CLIENT", nid));
        let excuses: Vec<_> = excused.iter().filter(|pattern| matches(pattern, &name)).collect();
        ensure(is_there == excuses.is_empty(), || match is_there {
            true => format!("{name} is there, and excused by {excuses:?}"),
            false => format!("{name} is missing"),
        })?;
        *(if is_there { &mut shown } else { &mut left_out }) += 1;
        needed.extend(excuses);
    }
    // As the document says.
    let counts = format!("{} names: {shown} are here, {left_out} are not", shown + left_out);
    ensure(part()?.replace('\n', " ").contains(&counts), || format!("{HEADING}: {counts}"))?;
    let of_no_use: Vec<_> = excused.iter().filter(|pattern| !needed.contains(pattern)).collect();
    ensure(of_no_use.is_empty(), || format!("excuses that no test needs: {of_no_use:?}"))
}

/// What parts of a server report of each other fits together.
fn all_fits_together(cluster: &Cluster) -> Outcome {
    let get = |name: &str| cluster.must(&["lctl", "get_param", "-n", name]);
    let sum = |name: &str| -> Outcome<u64> {
        let text = get(name)?;
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        numbers.map(|all| all.iter().sum()).map_err(|_| format!("{name}: {text}"))
    };
    let shown = get("mgs.MGS.filesystems")?;
    ensure(shown.trim() == "sheen", || shown.clone())?;
    let shown = get("osp.*OST0000*.state")?;
    ensure(shown.starts_with("current_state: FULL"), || shown.clone())?;
    let asked = get("osp.*OST0000*.stats")?;
    for request in ["req_waittime ", "ost_statfs ", "ost_create "] {
        ensure(asked.contains(request), || format!("{request}: {asked}"))?;
    }
    let (sequence, last) =
        (get("osp.*OST0000*.prealloc_last_seq")?, get("osp.*OST0000*.prealloc_last_id")?);
    let shown = get("obdfilter.*OST0000.last_id")?;
    let wanted = format!("{}:{}", sequence.trim(), last.trim());
    ensure(shown.trim() == wanted, || format!("{shown} instead of {wanted}"))?;
    for target in ["mdt.*", "obdfilter.*OST0000"] {
        let (all, each) =
            (format!("{target}.tot_granted"), format!("{target}.exports.*.grant_cur"));
        let (all, each) = (sum(&all)?, sum(&each)?);
        ensure(all == each, || format!("{target}: {each} of {all} bytes granted"))?;
    }
    let (shown, own) = (sum("osp.*OST0000*.kbytestotal")?, sum("obdfilter.*OST0000.kbytestotal")?);
    // An OST reports it in blocks.
    ensure(shown.abs_diff(own) < 4, || format!("{shown} of {own} KiB"))
}

/// Waits until a parameter is `wanted`.
fn becomes(cluster: &Cluster, name: &str, wanted: &str) -> Outcome {
    wait_until(&format!("{name} to be {wanted}"), SEEN, || {
        cluster.must(&["lctl", "get_param", "-n", name]).is_ok_and(|shown| shown.trim() == wanted)
    })
}

/// Objects that are to be destroyed are counted, of an OST that is not used for as long as it is not.
fn what_waits_for_an_ost_is_counted(cluster: &Cluster) -> Outcome {
    let set = |value: &str| {
        cluster.must(&["lctl", "set_param", &format!("osp.*OST0000*.active={value}")])
    };
    let file = cluster.mnt().join("striped");
    cluster.must(&["lfs", "setstripe", "-c", "2", &file.display().to_string()])?;
    fs::write(&file, "data").context("write")?;
    becomes(cluster, "osp.*OST0000*.destroys_in_flight", "0")?;
    set("0")?;
    fs::remove_file(&file).context("remove")?;
    for (name, wanted) in [
        ("osp.*OST0000*.destroys_in_flight", "1"),
        ("osp.*OST0000*.sync_changes", "1"),
        ("osp.*OST0000*.sync_in_progress", "0"),
        ("osp.*OST0001*.destroys_in_flight", "0"),
    ] {
        becomes(cluster, name, wanted)?;
    }
    set("1")?;
    becomes(cluster, "osp.*OST0000*.destroys_in_flight", "0")
}

/// After a restart of the servers it is shown when clients were back.
fn clients_that_were_back_are_listed(cluster: &Cluster) -> Outcome {
    let live = cluster.must(&["lctl", "get_param", "-n", "mgs.MGS.live.sheen"])?;
    for part in
        ["fsname: sheen\nsheen-MDT0000\nsheen-OST0000\nsheen-OST0001\n", "nonir_clients: 1\n"]
    {
        ensure(live.contains(part), || format!("{part}: {live}"))?;
    }
    let top = cluster.must(&["lctl", "get_param", "-n", "mdt.*.recovery_reconnect_top"])?;
    ensure(top == "client_reconnect_top:\n", || top.clone())?;
    cluster.kill_server()?;
    cluster.up()?;
    wait_until("the end of recovery", SEEN, || {
        let status = cluster.must(&["lctl", "get_param", "-n", "mdt.*.recovery_status"]);
        status.is_ok_and(|status| status.starts_with("status: COMPLETE"))
    })?;
    let top = cluster.must(&["lctl", "get_param", "-n", "mdt.*.recovery_reconnect_top"])?;
    let nid = cluster.must(&["lctl", "list_nids"])?;
    let line = top.lines().nth(1).unwrap_or_default();
    ensure(nid.lines().any(|nid| line.contains(&format!("\"{nid}\", delay_sec:"))), || {
        top.clone()
    })?;
    let histogram = ["lctl", "get_param", "-n", "mdt.*.recovery_reconnect_histogram"];
    let histogram = cluster.must(&histogram)?;
    ensure(histogram.contains("reconnect_delay_seconds_samples: 1\n"), || histogram.clone())?;
    let stale = cluster.must(&["lctl", "get_param", "-n", "mdt.*.recovery_stale_clients"])?;
    ensure(stale.trim().is_empty(), || stale.clone())
}

#[test]
fn every_name_of_a_server_is_there_or_has_its_reason() {
    scene("servers", 2, LIMIT, |cluster| {
        all_are_there_or_excused(cluster)?;
        all_fits_together(cluster)?;
        what_waits_for_an_ost_is_counted(cluster)?;
        clients_that_were_back_are_listed(cluster)
    });
}
