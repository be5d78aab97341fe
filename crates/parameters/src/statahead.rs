//! `llite.*.statahead_*`: what a mount asks ahead of its programs.

use std::sync::Arc;

use sheen_client::posix::AheadSettings;

use super::folder::{Folder, Number, Switch};
use super::mount::MountState;
use super::values::{self, U32_MAX};

/// `LL_SA_REQ_MAX`: more is cut to it.
const MAX: u64 = 2048;
/// `LL_SA_REQ_MIN`.
const MIN: u64 = 2;
/// `LL_SA_BATCH_MAX`: more is cut to it.
const BATCH_MAX: u64 = 1024;
/// `LL_SA_RUNNING_MAX`: more is refused.
const RUNNING_MAX: u64 = 256;

const SWITCHES: [Switch<MountState>; 2] = [
    ("statahead_agl", |it| of(it).asks_sizes.get(), |it, on| of(it).asks_sizes.set(on)),
    (
        "enable_statahead_fname",
        |it| of(it).guesses_names.get(),
        |it, on| of(it).guesses_names.set(on),
    ),
];

const NUMBERS: [Number<MountState>; 7] = [
    Number {
        leaf: "statahead_max",
        parse: values::number_of_any_base,
        range: 0..=u64::MAX,
        read: |it| of(it).max.get() as u64,
        write: |it, count| of(it).max.set(count.min(MAX) as usize),
    },
    Number {
        leaf: "statahead_min",
        parse: values::number_of_any_base,
        range: 0..=u64::MAX,
        read: |it| of(it).min.get() as u64,
        write: |it, count| set_min(of(it), count),
    },
    Number {
        leaf: "statahead_batch_max",
        parse: values::number_of_any_base,
        range: 0..=u64::MAX,
        read: |it| of(it).batch_max.get() as u64,
        write: |it, count| of(it).batch_max.set(count.min(BATCH_MAX) as usize),
    },
    Number {
        leaf: "statahead_running_max",
        parse: values::number_of_any_base,
        range: 0..=RUNNING_MAX,
        read: |it| of(it).running_max.get() as u64,
        write: |it, count| of(it).running_max.set(count as usize),
    },
    Number {
        leaf: "statahead_timeout",
        parse: values::number_of_any_base,
        range: 0..=u64::MAX,
        read: |it| of(it).timeout.get(),
        write: |it, count| of(it).timeout.set(count),
    },
    Number {
        leaf: "statahead_fname_predict_hit",
        parse: values::number_of_any_base,
        range: 0..=u64::MAX,
        read: |it| of(it).predict_hit.get().into(),
        write: |it, count| of(it).predict_hit.set(count.min(U32_MAX) as u32),
    },
    Number {
        leaf: "statahead_fname_match_hit",
        parse: values::number_of_any_base,
        range: 0..=u64::MAX,
        read: |it| of(it).match_hit.get().into(),
        write: |it, count| of(it).match_hit.set(count.min(U32_MAX) as u32),
    },
];

/// Adds its parameters.
pub(super) fn add(folder: &Folder<'_>, state: &Arc<MountState>) {
    folder.switches(state, &SWITCHES);
    folder.numbers(state, &NUMBERS);
    folder.tune("statahead_stats", state, stats, |it, _| {
        of(it).clear_counts();
        Ok(())
    });
}

fn of(state: &MountState) -> &AheadSettings {
    &state.files.settings().ahead
}

/// As in Lustre no error says that a value is not taken.
fn set_min(settings: &AheadSettings, count: u64) {
    if (MIN..=settings.max.get() as u64).contains(&count) {
        settings.min.set(count as usize);
    }
}

/// As Lustre shows it.
fn stats(state: &MountState) -> String {
    let counts = of(state).counts();
    let lines = [
        ("statahead total", counts.total),
        ("statahead wrong", counts.wrong),
        ("agl total", counts.agl),
        ("list_total", counts.list),
        ("fname_total", counts.fname),
        ("hit_total", counts.hits),
        ("miss_total", counts.misses),
    ];
    lines.iter().map(|(name, count)| format!("{name}: {count}\n")).collect()
}
