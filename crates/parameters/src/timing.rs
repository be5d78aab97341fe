//! `timeout`, `ping_interval` and `at_*`: how long a process waits for its peers, and what a device has of its own.

use std::sync::Arc;

use sheen_control::Tree;
use sheen_node::rpc::RpcNode;
use sheen_rpc::{OwnTimes, Time};
use sheen_types::{Errno, Uuid};

use super::folder::Folder;
use super::values;

/// Lustre's names of the times of a process.
const TIMES: [(&str, Time); 7] = [
    ("at_min", Time::AtMin),
    ("at_max", Time::AtMax),
    ("at_history", Time::AtHistory),
    ("at_early_margin", Time::AtEarlyMargin),
    ("at_extra", Time::AtExtra),
    ("timeout", Time::Timeout),
    ("ping_interval", Time::PingInterval),
];

/// Adds the times of a process; `changed` is called when one was set.
pub(super) fn add(tree: &Tree, node: &Arc<RpcNode>, changed: impl Fn() + Send + Sync + 'static) {
    let changed = Arc::new(changed);
    for (name, time) in TIMES {
        let (reader, writer, changed) = (Arc::clone(node), Arc::clone(node), Arc::clone(&changed));
        tree.add_writable(
            name,
            move || reader.time(time).to_string(),
            move |text| {
                writer.set_time(time, seconds(text)?);
                changed();
                Ok(())
            },
        );
    }
}

/// A connection with times of its own.
pub(super) trait HasTimes: Send + Sync + 'static {
    /// These times; `None` if there is no connection.
    fn own_times(&self) -> Option<OwnTimes>;
    /// Sets them.
    fn set_own_times(&self, times: OwnTimes);
}

/// Adds those of one device; 0 stands for what the process has.
pub(super) fn add_own<T: HasTimes>(folder: &Folder<'_>, device: &Arc<T>) {
    type Field = (&'static str, fn(&mut OwnTimes) -> &mut u32);
    let fields: [Field; 3] = [
        ("at_min", |times| &mut times.at_min),
        ("at_max", |times| &mut times.at_max),
        ("at_history", |times| &mut times.at_history),
    ];
    for (leaf, field) in fields {
        folder.tune(
            leaf,
            device,
            move |it| {
                let mut times = it.own_times().unwrap_or_default();
                field(&mut times).to_string()
            },
            move |it, text| {
                let mut times = it.own_times().ok_or(Errno::ENODEV)?;
                *field(&mut times) = seconds(text)?;
                it.set_own_times(times);
                Ok(())
            },
        );
    }
}

/// Adds those by which a target announces its service times to clients; 0 stands for what the process has.
pub(super) fn add_target(tree: &Tree, node: &Arc<RpcNode>, root: &str, target: &Uuid) {
    type Field = (&'static str, fn(&mut OwnTimes) -> &mut u32);
    let fields: [Field; 2] =
        [("at_min", |times| &mut times.at_min), ("at_max", |times| &mut times.at_max)];
    for (leaf, field) in fields {
        let (reader, writer) = (Arc::clone(node), Arc::clone(node));
        let (read, written) = (target.clone(), target.clone());
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || field(&mut reader.target_times(&read)).to_string(),
            move |text| {
                let mut times = writer.target_times(&written);
                *field(&mut times) = seconds(text)?;
                writer.set_target_times(&written, times);
                Ok(())
            },
        );
    }
}

fn seconds(text: &str) -> Result<u32, Errno> {
    Ok(values::number_within(text, 0, u32::MAX.into())? as u32)
}
