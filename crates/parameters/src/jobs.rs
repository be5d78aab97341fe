//! `jobid_var`, `jobid_name` and `jobid_this_session`: whose job a request is.

use std::sync::Arc;

use sheen_control::{Tree, asker};
use sheen_fuse::Jobs;
use sheen_types::Errno;

/// Adds them. A server takes the settings, too, and nothing comes of them there: a machine has one setting,
/// as in Lustre, whichever of our processes its tools ask.
pub(super) fn add(tree: &Tree, jobs: &Arc<Jobs>) {
    let (reader, writer) = (Arc::clone(jobs), Arc::clone(jobs));
    tree.add_writable(
        "jobid_var",
        move || reader.variable(),
        move |text| writer.set_variable(text),
    );
    let (reader, writer) = (Arc::clone(jobs), Arc::clone(jobs));
    tree.add_writable("jobid_name", move || reader.name(), move |text| writer.set_name(text));
    let (reader, writer) = (Arc::clone(jobs), Arc::clone(jobs));
    tree.add_writable(
        "jobid_this_session",
        move || asker().and_then(|pid| reader.of_session(pid)).unwrap_or_default(),
        move |text| writer.set_session(asker().ok_or(Errno::ESRCH)?, text),
    );
}
