//! `lmv.*.qos_*`: how a mount spreads new directories over MDTs.

use std::sync::Arc;
use std::time::Duration;

use sheen_client::posix::{BalanceSettings, DirectoryBalance};
use sheen_types::Errno;

use super::folder::Folder;
use super::lod::percent;
use super::values;

/// Adds them.
pub(super) fn add(folder: &Folder<'_>, balance: &Arc<DirectoryBalance>) {
    type Setting = (
        &'static str,
        fn(&BalanceSettings) -> String,
        fn(&mut BalanceSettings, &str) -> Result<(), Errno>,
    );
    let settings: [Setting; 5] = [
        ("qos_maxage", |it| it.max_age.as_secs().to_string(), set_max_age),
        (
            "qos_prio_free",
            |it| format!("{}%", it.free_percent),
            |it, text| {
                it.free_percent = at_most_all(percent(text)?)?;
                Ok(())
            },
        ),
        (
            "qos_threshold_rr",
            |it| format!("{}%", it.equal_percent),
            |it, text| {
                it.equal_percent = at_most_all(percent(text)?)?;
                Ok(())
            },
        ),
        ("qos_exclude_patterns", |it| lines(it, false), |it, text| it.change_excluded(text, false)),
        ("qos_exclude_prefixes", |it| lines(it, true), |it, text| it.change_excluded(text, true)),
    ];
    for (leaf, read, write) in settings {
        let (show, set) = (move |it: &DirectoryBalance| read(&it.settings()), write);
        folder.tune(leaf, balance, show, move |it, text| it.change(|it| set(it, text)));
    }
    let set_turn = |it: &DirectoryBalance, text: &str| {
        let turn = values::number_of_any_base(text)?;
        it.set_turn(turn.try_into().map_err(|_| Errno::ERANGE)?);
        Ok(())
    };
    folder.tune("qos_rr_index", balance, |it| it.turn().to_string(), set_turn);
}

fn set_max_age(it: &mut BalanceSettings, text: &str) -> Result<(), Errno> {
    let seconds: u32 = values::number_of_any_base(text)?.try_into().map_err(|_| Errno::ERANGE)?;
    it.max_age = Duration::from_secs(u64::from(seconds));
    Ok(())
}

fn at_most_all(percent: u32) -> Result<u32, Errno> {
    if percent > 100 { Err(Errno::EINVAL) } else { Ok(percent) }
}

/// Patterns, one in each line.
fn lines(it: &BalanceSettings, are_prefixes: bool) -> String {
    it.excluded(are_prefixes).collect::<Vec<_>>().join("\n")
}
