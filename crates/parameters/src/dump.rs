//! `ldlm.dump_namespaces`: a write of any text logs all locks, as in Lustre, to find out which request
//! waits for which client.

use sheen_control::Tree;

/// Adds the order; `dump` logs all locks of this process.
pub(super) fn add(tree: &Tree, dump: impl Fn() + Send + Sync + 'static) {
    tree.add_order("ldlm.dump_namespaces", move |_| {
        dump();
        Ok(())
    });
}
