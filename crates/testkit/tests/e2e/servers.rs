//! The names of a Lustre server: each is there, or `docs/COMPAT.md` says why not.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::{Outcome, Told, ensure};

const LIMIT: Duration = Duration::from_secs(120);
/// The part of the document that is read.
const HEADING: &str = "## Parameters of servers that do not apply";

/// Where a server of Lustre 2.17 has parameters, and their names, as its source registers them.
const NAMES: [(&str, &str); 16] = [
    (
        "mdt.sheen-MDT0000",
        "async_commit_count at_history at_max at_min checksum_dump checksum_t10pi_enforce \
         checksum_type commit_on_sharing dir_restripe_nsonly dir_split_count dir_split_delta \
         dom_lock dom_read_open enable_cap_mask enable_chprojid_gid enable_dir_auto_split \
         enable_dir_migration enable_dir_restripe enable_dmv_implicit_inherit enable_dmv_xattr \
         enable_foreign_dir enable_foreign_dir_gid enable_parallel_rename_crossdir \
         enable_parallel_rename_dir enable_parallel_rename_file enable_pin_gid enable_remote_dir \
         enable_remote_dir_gid enable_remote_rename enable_remote_subdir_mount \
         enable_rename_trylock enable_resource_id_check enable_strict_som enable_striped_dir \
         evict_client evict_tgt_nids eviction_count force_sync grant_check_threshold \
         grant_compat_disable hsm_control identity_acquire_expire identity_expire identity_flush \
         identity_info identity_upcall instance ir_factor job_cleanup_interval job_stats job_xattr \
         ldlm_enqueue_min local_recovery max_mod_rpcs_in_flight md_stats migrate_hsm_allowed \
         no_create nosquash_nids num_exports readonly recovery_status recovery_time_hard \
         recovery_time_soft root_squash sync_count tot_dirty tot_granted tot_pending uuid \
         hash_stats hsm.actions",
    ),
    (
        "mdt.sheen-MDT0000.exports",
        "clear CLIENT.export CLIENT.fmd_count CLIENT.hash CLIENT.ldlm_stats CLIENT.nodemap \
         CLIENT.open_files CLIENT.reply_data CLIENT.stats CLIENT.uuid",
    ),
    (
        "obdfilter.sheen-OST0000",
        "access_log_mask access_log_size atime_diff at_history at_max at_min blocksize brw_size \
         checksum_dump checksum_t10pi_enforce checksum_type degraded enable_resource_id_check \
         enable_resource_id_repair evict_client eviction_count failure_domain filesfree filestotal \
         force_sync fstype grant_check_threshold grant_compat_disable grant_precreate instance \
         ir_factor job_cleanup_interval job_stats kbytesavail kbytesfree kbytestotal \
         ldlm_enqueue_min lfsck_speed_limit no_create no_precreate num_exports precreate_batch \
         readonly recovery_status recovery_time_hard recovery_time_soft \
         resource_id_repair_queue_count seqs_allocated soft_sync_limit stats sync_journal \
         tot_dirty tot_granted tot_pending uuid",
    ),
    (
        "obdfilter.sheen-OST0000.exports",
        "clear CLIENT.export CLIENT.reply_data CLIENT.stats CLIENT.uuid",
    ),
    (
        "osd-sheen.sheen-OST0000",
        "auto_scrub blocksize brw_stats filesfree filestotal force_sync fstype full_scrub_ratio \
         index_backup io_latency_stats kbytesavail kbytesfree kbytestotal mntdev nonrotational \
         oi_scrub pdo read_cache_enable readcache_max_filesize stats writethrough_cache_enable \
         quota_slave.info",
    ),
    (
        "lod.sheen-MDT0000-mdtlov",
        "activeobd desc_uuid dist_txn_check_space dom_stripesize dom_stripesize_cur_kb \
         dom_stripesize_max_kb dom_threshold_free_mb lmv_failout max_mdt_stripecount \
         max_stripecount max_stripes_per_mdt mdt_activeobd mdt_hash mdt_numobd mdt_qos_maxage \
         mdt_qos_prio_free mdt_qos_threshold_rr mdt_stripecount mdt_stripetype mirror_count_max \
         numobd qos_maxage qos_prio_free qos_threshold_rr stripecount stripeoffset stripesize \
         stripetype target_obd",
    ),
    (
        "mdd.sheen-MDT0000",
        "append_pool append_stripe_count atime_diff changelog_users changelog_mask changelog_size \
         lfsck_speed_limit sync_permission",
    ),
    (
        "osp.sheen-OST0000-osc-MDT0000",
        "active create_count max_create_count prealloc_last_id prealloc_last_seq prealloc_next_id \
         prealloc_next_seq prealloc_status",
    ),
    ("mgs.MGS", "evict_client eviction_count fstype ir_timeout num_exports uuid live.sheen"),
    (
        "mgs.MGS.mgs",
        "nrs_policies req_history stats threads_max threads_min threads_started timeouts",
    ),
    (
        "ost.OSS.ost_io",
        "enable_pmqos high_priority_ratio nrs_policies pmqos_latency_max_usec \
         req_buffer_history_len req_buffers_max req_history stats threads_max timeouts",
    ),
    (
        "mds.MDS",
        "mdt.stats mdt_fld.stats mdt_io.stats mdt_out.stats mdt_readpage.stats mdt_seqm.stats \
         mdt_seqs.stats mdt_setattr.stats",
    ),
    ("ost.OSS", "ost.stats ost_create.stats ost_io.stats ost_out.stats ost_seq.stats"),
    ("ldlm.services", "ldlm_canceld.stats ldlm_cbd.stats"),
    (
        "ldlm.namespaces.mdt-sheen-MDT0000_UUID",
        "contended_locks contention_seconds ctime_age_limit early_lock_cancel lock_count \
         lock_timeouts lock_unused_count lru_max_age lru_size max_nolock_bytes max_parallel_ast \
         pool.granted resource_count",
    ),
    (
        "",
        "at_early_margin at_extra at_history at_max at_min devices health_check jobid_name \
         jobid_var ldlm_timeout lnet_memused memused timeout version",
    ),
];

/// The patterns of the table's first column.
fn excused() -> Outcome<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMPAT.md");
    let text = fs::read_to_string(path).told("COMPAT.md")?;
    let part = text.split(HEADING).nth(1).ok_or("no such part")?;
    let part = part.split("\n## ").next().unwrap_or_default();
    let column = part.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = column.flat_map(|cell| cell.split('`').filter(|name| !name.trim().is_empty()));
    Ok(names.map(str::to_owned).collect())
}

/// Whether `name` matches a pattern of the table, whose stars match any letters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(head) else { return false };
    (0..=rest.len()).any(|from| rest.is_char_boundary(from) && matches(tail, &rest[from..]))
}

fn all_are_there_or_excused(cluster: &Cluster) -> Outcome {
    let excused = excused()?;
    ensure(excused.len() > 50, || format!("the table has {} names", excused.len()))?;
    let nid = cluster.must(&["lctl", "list_param", "-R", "mdt.*.exports"])?;
    let nid = nid.lines().find_map(|line| line.strip_suffix(".uuid"));
    let nid = nid.and_then(|line| line.split("exports.").nth(1)).ok_or("no client")?.to_owned();
    for (place, names) in NAMES {
        for name in names.split_whitespace() {
            let name = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
            let found = cluster.run(&["lctl", "list_param", &name.replace("CLIENT", &nid)])?;
            let is_there = found.status.success() && !found.output.contains("error");
            let excuse = excused.iter().find(|pattern| matches(pattern, &name));
            ensure(is_there != excuse.is_some(), || match excuse {
                Some(pattern) => format!("{name} is there, and excused by {pattern}"),
                None => format!("{name} is missing: {}", found.output),
            })?;
        }
    }
    Ok(())
}

#[test]
fn every_name_of_a_server_is_there_or_has_its_reason() {
    scene("servers", 2, LIMIT, all_are_there_or_excused);
}
