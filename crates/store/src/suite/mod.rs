//! The contract as tests: what every back end must pass.
//!
//! A back end calls [`contract!`](crate::contract) with a way to make an empty store, and, if it is
//! durable, [`contract_durable!`](crate::contract_durable) with a way to close and open one. Each
//! function here is one promise of the contract; [`model`] is the smallest store that could keep
//! it, and [`script`] makes random transactions from numbers, so that a crash test in another
//! process can replay the same ones from a seed.
//!
//! Failures panic: this is test code, and the panic's message is the finding.

pub mod model;
pub mod script;
mod tests;

pub use tests::*;

use std::sync::Arc;

use crate::Store;

/// Makes an empty store of the back end under test.
pub type Make<'a> = &'a dyn Fn() -> Arc<dyn Store>;

/// One `#[test]` for each promise; the argument is an expression of type
/// `Fn() -> Arc<dyn Store>`.
#[macro_export]
macro_rules! contract {
    ($make:expr) => {
        $crate::contract!(@each $make;
            objects_live_and_die, attributes_are_patched, extended_attributes,
            index_keys, keys_need_no_object, scans_are_ordered_and_bounded,
            errors_are_typed, refused_transactions_leave_nothing, steps_see_earlier_steps,
            destroy_drops_keys_and_data, sequences_count_up, commit_hooks_run_in_order,
            hooks_have_run_when_a_commit_returns,
            scans_while_changing, patches_from_many_threads, inserts_from_many_threads,
            transactions_are_seen_whole,
            data_is_read_back, data_is_sparse, data_grows_and_shrinks, data_is_punched,
            data_is_allocated, data_is_sought, data_needs_a_regular_object,
            data_ends_where_it_must, data_from_many_threads, data_is_exchanged, data_is_looked_through, recreated_objects_are_empty, space_is_reported,
            random_transactions_match_the_model, random_data_matches_the_model);
    };
    (@each $make:expr; $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            let make = $make;
            $crate::suite::$name(&move || make());
        })*
    };
}

/// One `#[test]` for each promise about durability: the first argument makes an empty store (as an
/// `Arc` of its own type), the second closes one and opens it again.
#[macro_export]
macro_rules! contract_durable {
    ($make:expr, $reopen:expr) => {
        $crate::contract_durable!(@each $make, $reopen;
            committed_state_survives, sequences_go_on, destroyed_data_is_gone,
            many_keys_survive, rewritten_over_many_commits, commit_wakes_many_waiters,
            creations_become_durable, exchanged_data_survives);
    };
    (@each $make:expr, $reopen:expr; $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $crate::suite::$name(&$make, &$reopen);
        })*
    };
}
