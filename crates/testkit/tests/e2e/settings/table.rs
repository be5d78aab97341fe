//! Each parameter that can be written: what Lustre takes for it and how that is shown, and the test by which its
//! effect is shown.

/// A parameter, or several that differ in the part in braces only.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What is written, and what is shown then: by each that matches, or as a line of it if it has a colon.
    pub(super) values: &'static [(&'static str, &'static str)],
    /// A test's function, or behind `docs: ` what docs/COMPAT.md says of why it has none.
    pub(super) effect: &'static str,
}

const fn row(
    name: &'static str,
    values: &'static [(&'static str, &'static str)],
    effect: &'static str,
) -> Row {
    Row { name, values, effect }
}

/// On or off, in the kernel's words.
const SWITCH: &[(&str, &str)] = &[("on", "1"), ("No", "0"), ("y", "1"), ("0", "0")];
/// Seconds.
const TIME: &[(&str, &str)] = &[("300", "300"), ("020", "20")];
/// Seconds where Lustre takes numbers of any base.
const TIME_OF_ANY_BASE: &[(&str, &str)] = &[("0x40", "64"), ("020", "16")];
/// What is shown does not matter: it is how things were before, and nothing is set back.
pub(super) const ANY: &str = "";
/// What is counted anew, or done, whatever is written: values are shown by the test.
const ORDER: &[(&str, &str)] = &[];

/// All of them.
pub(super) const TABLE: &[Row] = &[
    row("allow_register", SWITCH, "a_target_is_registered_by_its_own_node"),
    row("at_early_margin", TIME, "operators_say_how_much_time_early_replies_ask_for_and_when"),
    row("at_extra", TIME, "operators_say_how_much_time_early_replies_ask_for_and_when"),
    row("at_history", TIME, "operators_say_how_long_it_is_remembered"),
    row("at_max", TIME, "operators_say_how_long_a_request_is_waited_for"),
    row("at_min", TIME, "operators_say_how_long_a_request_is_waited_for"),
    row(
        "budget.client_{requests_active,queued_bytes}",
        &[("0x200000", "2097152"), ("67108864", "67108864")],
        "what_waits_of_a_flood_is_bounded_and_counted",
    ),
    row(
        "budget.client_bulk_bytes",
        &[("0x800000", "8388608"), ("67108864", "67108864")],
        "bulk_that_is_under_way_is_bounded_and_all_of_it_comes",
    ),
    row("enable_stats_header", &[("0", "0"), ("1", "1")], "headers"),
    row(
        "jobid_name",
        &[("%e:%u", "%e:%u"), ("%j.%h", "%j.%h")],
        "names_are_made_as_lustre_makes_them",
    ),
    row("jobid_this_session", &[("two words", "two"), ("one", "one"), ("1", ANY)], "sessions"),
    row(
        "jobid_var",
        &[("procname_uid", "procname_uid"), ("nodelocal", "nodelocal"), ("MY_JOB", "MY_JOB")],
        "a_process_has_the_job_that_is_asked_for",
    ),
    row(
        "ldlm.cancel_unused_locks_before_replay",
        &[("0", "0"), ("1", "1")],
        "unused_locks_are_dropped_before_locks_are_replayed_to_a_restarted_ost",
    ),
    row("ldlm.dump_namespaces", ORDER, "all_locks_are_written_into_the_log_when_asked_for"),
    row(
        "ldlm.namespaces.*.contended_locks",
        &[("040", "40"), ("32", "32")],
        "a_short_lock_on_a_contended_object_is_refused_to_who_asks_so",
    ),
    row(
        "ldlm.namespaces.*.contention_seconds",
        &[("7", "7"), ("2", "2")],
        "a_short_lock_on_a_contended_object_is_refused_to_who_asks_so",
    ),
    row(
        "ldlm.namespaces.*.dirty_age_limit",
        &[("20", "20"), ("010", "10")],
        "an_unused_lock_for_writing_goes_after_a_glimpse",
    ),
    row("ldlm.namespaces.*.early_lock_cancel", &[("0", "0"), ("2", "1")], "locks"),
    row(
        "ldlm.namespaces.*.lock_cache_policy",
        &[("lfru", "LFRU"), ("LRU", "LRU")],
        "locks_that_are_used_often_outlive_many_that_are_used_once",
    ),
    row(
        "ldlm.namespaces.*.lru_cancel_batch",
        &[("3", "3"), ("100", "100")],
        "locks_that_are_too_many_go_in_batches_as_large_as_operators_say",
    ),
    row(
        "ldlm.namespaces.*.lru_max_age",
        &[("600s", "600000"), ("70000", "70000"), ("5000ms", "5000")],
        "locks",
    ),
    row(
        "ldlm.namespaces.*.lru_priv_ratio_limit",
        &[("10", "9"), ("50", "50")],
        "too_many_privileged_locks_are_none",
    ),
    row(
        "ldlm.namespaces.*.lru_priv_score_threshold",
        &[("-5", "-5"), ("100", "100")],
        "locks_that_are_used_often_outlive_many_that_are_used_once",
    ),
    row("ldlm.namespaces.*.lru_size", &[("100", "100"), ("300", "300"), ("0", ANY)], "locks"),
    row(
        "ldlm.namespaces.*.max_nolock_bytes",
        &[("4095", "4095"), ("0", "0")],
        "a_short_lock_on_a_contended_object_is_refused_to_who_asks_so",
    ),
    row("ldlm_timeout", TIME, "lock_timeout"),
    row(
        "llite.*.{checksums,checksum_pages}",
        SWITCH,
        "without_checksums_none_is_sent_and_none_looked_at",
    ),
    row(
        "llite.*.default_easize",
        &[("128", "128"), ("4096", "4096")],
        "answers_have_the_room_that_operators_give_them",
    ),
    row(
        "llite.*.enable_setstripe_gid",
        &[("-1", "-1"), ("100", "100")],
        "files_are_laid_out_by_those_whom_operators_let",
    ),
    row("llite.*.{extents_stats,extents_stats_per_process,offset_stats}", ORDER, "counted_anew"),
    row("llite.*.file_heat", SWITCH, "heat_is_counted_where_operators_and_users_want_it"),
    row(
        "llite.*.heat_decay_percentage",
        &[("100", "100"), ("50", "50")],
        "heat_is_counted_where_operators_and_users_want_it",
    ),
    row("llite.*.heat_period_second", TIME, "heat_is_counted_where_operators_and_users_want_it"),
    row("llite.*.hybrid_io", SWITCH, "hybrid"),
    row("llite.*.lazystatfs", SWITCH, "an_ost_that_is_down_is_waited_for_unless_statfs_is_lazy"),
    row(
        "llite.*.max_cached_mb",
        &[
            ("100", "max_cached_mb: 100"),
            (".5G", "max_cached_mb: 512"),
            ("max_cached_mb: 128M", "max_cached_mb: 128"),
            ("1", "max_cached_mb: 64"),
        ],
        "the_kernel_keeps_no_more_of_files_than_operators_say",
    ),
    row(
        "llite.*.max_read_ahead_mb",
        &[("300", "300"), (".25G", "256"), ("512MiB", "512"), ("100MB", "96")],
        "nothing_is_read_ahead_when_nothing_may_be",
    ),
    row(
        "llite.*.max_read_ahead_per_file_mb",
        &[("16", "16"), ("4.5M", "5"), ("0", "0")],
        "no_file_is_read_ahead_farther_than_operators_allow",
    ),
    row(
        "llite.*.max_read_ahead_whole_mb",
        &[("1", "1"), ("1.5M", "2"), ("0", "0")],
        "small_files_are_read_whole_if_operators_want_it",
    ),
    row(
        "{llite,mdt}.*.nosquash_nids",
        &[("10.0.0.1@tcp", "10.0.0.1@tcp"), ("NONE", "NONE")],
        "root_is_squashed_by_the_mdt_and_in_the_cache",
    ),
    row("llite.*.{opencache_max_ms,opencache_threshold_ms}", TIME, "reopening"),
    row(
        "llite.*.opencache_threshold_count",
        &[("7", "7"), ("on", "1"), ("No", "off"), ("0", "off"), ("5", "5")],
        "reopening",
    ),
    row("llite.*.read_ahead_stats", ORDER, "counted_anew"),
    row(
        "{llite,mdt}.*.root_squash",
        &[("99:100", "99:100"), ("0:0", "0:0")],
        "root_is_squashed_by_the_mdt_and_in_the_cache",
    ),
    row(
        "llite.*.stat_blocksize",
        &[("1048576", "1048576"), ("0", "0")],
        "blocks_are_as_large_as_operators_say",
    ),
    row(
        "llite.*.enable_statahead_fname",
        SWITCH,
        "nothing_is_guessed_of_names_that_are_not_there_or_where_operators_forbid_it",
    ),
    row("llite.*.statahead_agl", SWITCH, "sizes_come_along_unless_operators_do_not_want_them"),
    row(
        "llite.*.statahead_batch_max",
        &[("5000", "1024"), ("0x40", "64")],
        "names_go_in_requests_as_large_as_operators_say",
    ),
    row(
        "llite.*.statahead_fname_{match_hit,predict_hit}",
        &[("0x9", "9"), ("2", "2")],
        "names_in_order_are_worth_a_guess_after_the_seventh",
    ),
    row("llite.*.statahead_max", &[("0x20", "32"), ("5000", "2048"), ("010", "8")], "listings"),
    row(
        "llite.*.statahead_min",
        &[("5", "5"), ("1", "5"), ("8", "8")],
        "a_window_begins_small_and_grows_with_hits_to_what_operators_allow",
    ),
    row(
        "llite.*.statahead_running_max",
        &[("256", "256"), ("0", "0"), ("020", "16")],
        "there_are_no_more_runs_than_operators_allow",
    ),
    row("llite.*.statahead_stats", ORDER, "counted_anew"),
    row(
        "llite.*.statahead_timeout",
        &[("7", "7"), ("30", "30")],
        "what_was_not_used_is_dropped_with_its_listing_or_in_time",
    ),
    row("llite.*.statfs_max_age", &[("60", "60"), ("0", "0")], "space"),
    row("llite.*.stats", ORDER, "counted_anew"),
    row(
        "llite.*.{stats_track_gid,stats_track_pid,stats_track_ppid}",
        &[("77", "77"), ("0", "0 (all)")],
        "followed",
    ),
    row("llite.*.sync_on_close", SWITCH, "closing"),
    row("llite.*.xattr_cache", SWITCH, "xattrs"),
    row("lmv.*.md_stats", ORDER, "counted_anew"),
    row(
        "lod.*.dom_stripesize",
        &[("128K", "131072"), ("1M", "1048576")],
        "the_limit_on_the_mdt_is_set_as_lustre_sets_it",
    ),
    row(
        "lod.*.dom_stripesize_max_kb",
        &[("512", "512"), ("1M", "1024")],
        "the_limit_on_the_mdt_is_set_as_lustre_sets_it",
    ),
    row("lod.*.dom_threshold_free_mb", &[("2M", "2"), ("1", "1")], "data_on_mdt"),
    row(
        "lod.*.max_stripecount",
        &[("0x10", "16"), ("0", "0")],
        "limits_and_appended_files_are_as_operators_set_them",
    ),
    row(
        "lod.*.max_mdt_stripecount",
        &[("0x10", "16"), ("0", "0")],
        "overstriped_ones_go_round_again_up_to_the_limits",
    ),
    row(
        "lod.*.max_stripes_per_mdt",
        &[("2", "2"), ("5", "5")],
        "overstriped_ones_go_round_again_up_to_the_limits",
    ),
    row(
        "lod.*.mdt_hash",
        &[("crush", "crush"), ("2", "fnv_1a_64")],
        "overstriped_ones_go_round_again_up_to_the_limits",
    ),
    row(
        "lod.*.{qos_prio_free,qos_threshold_rr}",
        &[("50%", "50%"), ("0x10", "16%"), ("25", "25%")],
        "free_space_decides_as_far_as_operators_let_it",
    ),
    row(
        "lod.*.qos_maxage",
        &[("5", "5"), ("0x3", "3")],
        "what_an_ost_said_of_its_space_is_believed_for_as_long_as_operators_say",
    ),
    row(
        "lmv.*.{qos_prio_free,qos_threshold_rr}",
        &[("50%", "50%"), ("0x10", "16%"), ("25", "25%")],
        "operators_say_what_is_equal",
    ),
    row(
        "lmv.*.qos_maxage",
        &[("5", "5"), ("0x3", "3")],
        "free_space_is_asked_again_as_often_as_operators_say",
    ),
    row(
        "lmv.*.qos_rr_index",
        &[("7", "7"), ("0x3", "3")],
        "while_mdts_are_equally_full_directories_go_round_or_stay",
    ),
    row(
        "lmv.*.{qos_exclude_patterns,qos_exclude_prefixes}",
        &[("a*", "a*")],
        "a_name_that_is_excluded_stays_on_its_parents_mdt",
    ),
    row("lod.*.stripecount", &[("-1", "-1"), ("0x2", "2"), ("0", "1")], "layouts"),
    row("lod.*.stripeoffset", &[("1", "1"), ("-1", "-1")], "layouts"),
    row(
        "lod.*.stripesize",
        &[("1M", "1048576"), ("200000", "196608"), ("1", "4194304")],
        "layouts",
    ),
    row("lov.*.stripecount", &[("-1", "-1"), ("0x2", "2")], LOV),
    row("lov.*.stripeoffset", &[("1", "1"), ("-1", "-1")], LOV),
    row("lov.*.stripesize", &[("1M", "1048576"), ("200000", "196608")], LOV),
    row("lov.*.stripetype", &[("0x201", "513"), ("1", "1")], LOV),
    row(
        "max_dirty_mb",
        &[("100", "100"), ("200", "200")],
        "no_more_is_dirty_towards_all_osts_together_than_operators_allow",
    ),
    row(
        "{mdc,osc}.*.active",
        SWITCH,
        "an_import_that_operators_turn_off_refuses_calls_until_they_turn_it_on",
    ),
    row(
        "{mdc,osc,mgc}.*.{at_history,at_max,at_min}",
        TIME,
        "an_import_has_its_own_times_or_those_of_the_process",
    ),
    row("{mdc,osc}.*.checksum_dump", SWITCH, "garbled_data_is_kept_where_operators_want_it"),
    row(
        "{mdc,osc}.*.checksum_type",
        &[("adler", "[adler] crc32c"), ("CRC32C", "adler [crc32c]")],
        "data_goes_with_the_checksum_that_operators_choose",
    ),
    row("{mdc,osc}.*.checksums", SWITCH, "without_checksums_none_is_sent_and_none_looked_at"),
    row(
        "mdc.*.dom_min_repsize",
        &[("0x1000", "4096"), ("010000", "4096")],
        "answers_have_the_room_that_operators_give_them",
    ),
    row(
        "mdc.*.flocks_per_client",
        &[("0x10000", "65536"), ("4096", "4096"), ("65536", "65536")],
        "shares_are_of_what_operators_say_that_the_mdt_grants",
    ),
    row("{mdc,osc}.*.grant_shrink", SWITCH, "unused_grant_is_returned"),
    row("{mdc,osc}.*.grant_shrink_interval", TIME_OF_ANY_BASE, "unused_grant_is_returned"),
    row("{mdc,osc,mgc}.*.import", ORDER, "connections"),
    row(
        "mdc.*.lsom",
        &[("off", "Off"), ("1", "On")],
        "a_close_sends_the_size_as_far_as_operators_want_it",
    ),
    row(
        "{mdc,osc}.*.max_dirty_mb",
        &[("64M", "64"), (".1G", "103"), ("70000kB", "67")],
        "no_more_is_dirty_than_operators_allow",
    ),
    // A bulk to an MDT has a MiB at most.
    row(
        "mdc.*.{max_mb_per_rpc_read,max_mb_per_rpc_write}",
        &[("1", "1"), ("1024K", "1")],
        "rpcs_are_as_large_as_operators_allow",
    ),
    row(
        "osc.*.{max_mb_per_rpc_read,max_mb_per_rpc_write}",
        &[("1", "1"), ("2M", "2")],
        "rpcs_are_as_large_as_operators_allow",
    ),
    row("mdc.*.max_mod_rpcs_in_flight", &[("3", "3"), ("5", "5")], "changes"),
    row("mdc.*.max_pages_per_rpc", &[("128", "128"), ("1M", "256")], "rpcs"),
    row("osc.*.max_pages_per_rpc", &[("256", "256"), ("2M", "512"), ("1048576", "256")], "rpcs"),
    row("mdc.*.max_rpcs_in_flight", &[("16", "16"), ("012", "12")], "changes"),
    row("osc.*.max_rpcs_in_flight", &[("0x10", "16"), ("012", "10")], "rpcs"),
    row("mdc.*.md_stats", ORDER, "counted_anew"),
    row("{mdc,osc,mgc}.*.ping", ORDER, "expected_times"),
    row(
        "{mdc,osc}.*.pinger_recov",
        SWITCH,
        "a_lost_connection_is_made_again_at_once_or_when_a_caller_asks",
    ),
    row("{mdc,osc}.*.{rpc_stats,stats}", ORDER, "counted_anew"),
    row(
        "mdd.*.append_pool",
        &[("flash", "flash"), ("inherit", ANY)],
        "limits_and_appended_files_are_as_operators_set_them",
    ),
    row(
        "mdd.*.append_stripe_count",
        &[("-1", "-1"), ("0x2", "2")],
        "limits_and_appended_files_are_as_operators_set_them",
    ),
    row(
        "mdd.*.atime_diff",
        &[("2", "2"), ("60", "60")],
        "a_time_of_access_is_kept_where_it_is_newer_by_what_operators_say",
    ),
    row("{mdt,obdfilter,mgs}.*.{at_max,at_min}", TIME, "expected_times"),
    row(
        "mdt.*.dom_lock",
        &[("never", "never"), ("2", "trylock"), ("0", "never"), ("trylock", "trylock")],
        "operators_say_what_an_open_brings",
    ),
    row("mdt.*.dom_read_open", SWITCH, "operators_say_what_an_open_brings"),
    row(
        "mdt.*.enable_cap_mask",
        &[
            ("cap_fowner,cap_chown", "cap_chown,cap_fowner"),
            ("0x2", "cap_dac_override"),
            ("0", "0"),
        ],
        "capabilities_that_a_client_claims_for_a_user_are_dropped",
    ),
    row(
        "mdt.*.enable_strict_som",
        &[("No", "0"), ("on", "1")],
        "an_administrator_says_that_sizes_are_in_doubt",
    ),
    row(
        "obdfilter.*.mdt_identity",
        // It is shown among those that are known.
        &[("MDT0007:11111111-2222-3333-4444-555555555555", ANY), ("MDT0007:none", ANY)],
        "an_mdt_formatted_anew_over_a_lost_one_removes_no_data",
    ),
    row("{mdt,obdfilter,mgs}.*.evict_client", ORDER, "clients"),
    row(
        "{mdt,obdfilter,mgs}.*.exports_per_nid",
        &[("0x20", "32"), ("1024", "1024")],
        "a_node_has_so_many_exports_and_another_node_as_many",
    ),
    row(
        "{mdt,obdfilter,mgs}.*.callbacks_per_client",
        &[("0x40", "64"), ("1024", "1024")],
        "a_client_has_so_many_callbacks_unanswered_and_its_other_exports_get_theirs",
    ),
    row(
        "{mdt,obdfilter,mgs}.*.locks_per_client",
        &[("0x10000", "65536"), ("262144", "262144")],
        "a_client_with_too_many_locks_has_some_revoked_and_is_refused_more_and_another_is_not",
    ),
    row(
        "mdt.*.opens_per_client",
        &[("0x10000", "65536"), ("131072", "131072")],
        "a_client_has_so_many_files_open_and_another_its_own",
    ),
    row("{mdt,obdfilter,mgs}.*.exports.clear", ORDER, "clients"),
    row("{mdt,obdfilter,osd-sheen}.*.force_sync", ORDER, "syncing"),
    row(
        "{mdt,obdfilter}.*.job_cleanup_interval",
        TIME_OF_ANY_BASE,
        "jobs_are_forgotten_when_idle_or_when_asked",
    ),
    row("{mdt,obdfilter}.*.job_stats", ORDER, "counted_anew"),
    row("mdt.*.max_mod_rpcs_in_flight", &[("0x8", "8"), ("3", "3")], "agreements"),
    row("mdt.*.md_stats", ORDER, "counted_anew"),
    row("mdt.*.{no_create,readonly}", SWITCH, "changes"),
    row("mdt.*.enable_remote_dir", SWITCH, "names_and_inodes_lie_on_two_mdts"),
    row("mdt.*.enable_striped_dir", SWITCH, "wishes_that_cannot_be_are_refused_by_name"),
    row("mdt.*.enable_dir_migration", SWITCH, "migrations_that_cannot_be_are_refused_by_name"),
    row(
        "mdt.*.enable_dir_restripe",
        SWITCH,
        "a_directory_is_split_and_merged_as_captured_and_keeps_its_inodes",
    ),
    row("mdt.*.enable_dir_auto_split", SWITCH, "a_directory_with_many_names_is_split_by_itself"),
    row(
        "mdt.*.dir_split_count",
        &[("1K", "1024"), ("50000", "50000")],
        "a_directory_with_many_names_is_split_by_itself",
    ),
    row(
        "mdt.*.dir_split_delta",
        &[("0x10", "16"), ("4", "4")],
        "a_directory_with_many_names_is_split_by_itself",
    ),
    row(
        "mdt.*.dir_restripe_nsonly",
        &[("1", "1"), ("on", "1")],
        "a_directory_is_split_and_merged_as_captured_and_keeps_its_inodes",
    ),
    row(
        "mdt.*.enable_remote_dir_gid",
        &[("-1", "-1"), ("0x10", "16"), ("0", "0")],
        "an_ordinary_user_has_several_mdts_and_says_who_chooses_one",
    ),
    row(
        "{mdt,obdfilter}.*.recovery_time_soft",
        TIME_OF_ANY_BASE,
        "recovery_waits_as_long_as_operators_say",
    ),
    row(
        "{mdt,obdfilter}.*.recovery_time_hard",
        TIME_OF_ANY_BASE,
        "progress_prolongs_recovery_no_longer_than_operators_say",
    ),
    row("obdfilter.*.brw_size", &[("1", "1"), ("2M", "2")], "agreements"),
    row("obdfilter.*.{degraded,no_create,no_precreate,readonly}", SWITCH, "placement"),
    row("obdfilter.*.stats", ORDER, "counted_anew"),
    row("osc.*.idle_connect", ORDER, "an_ost_is_turned_off_and_on_and_left_alone"),
    row(
        "osc.*.idle_timeout",
        &[("20", "20"), ("debug", "20"), ("0", "0")],
        "an_unused_connection_is_given_up_and_made_again_when_it_is_needed",
    ),
    row("osc.*.io_latency_stats", ORDER, "counted_anew"),
    row(
        "osc.*.resend_count",
        &[("3", "3"), ("010", "10")],
        "data_is_sent_again_as_often_as_operators_allow",
    ),
    row(
        "osc.*.short_io_bytes",
        &[("64", "64"), ("4K", "4096"), ("0", "0"), ("-1", "16384"), ("1M", "65536")],
        "small_data_goes_inside_the_messages_as_far_as_operators_allow",
    ),
    row(
        "osd-sheen.*.block_checksums",
        SWITCH,
        "what_is_written_without_checksums_is_unknown_until_it_is_scrubbed",
    ),
    row("osd-sheen.*.brw_stats", ORDER, "counted_anew"),
    row("osp.*.active", SWITCH, "inactive"),
    row(
        "osp.*.create_count",
        &[("64", "64"), ("0x80", "128"), ("300", "256"), ("100", "64")],
        "objects_are_made_in_batches_of_the_size_that_operators_set",
    ),
    row(
        "osp.*.max_create_count",
        &[("8192", "8192"), ("0", "0"), ("0x1000", "4096")],
        "an_ost_of_which_no_objects_may_be_made_gets_no_files_and_loses_those_that_go",
    ),
    row("ping_interval", TIME, "operators_say_how_often_is_pinged"),
    row("timeout", TIME, "operators_say_how_long_a_request_is_waited_for"),
];

const LOV: &str = "docs: `lov.*.stripe*` of a mount are kept for readers of them";
