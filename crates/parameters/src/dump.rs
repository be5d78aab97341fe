//! `ldlm.dump_namespaces`: whatever is written to it, every lock goes into the log, as in Lustre. For
//! finding out who waits for whom.

use sheen_control::Tree;

/// Adds the order; `dump` logs all locks of this process.
pub(super) fn add(tree: &Tree, dump: impl Fn() + Send + Sync + 'static) {
    tree.add_order("ldlm.dump_namespaces", move |_| {
        dump();
        Ok(())
    });
}
