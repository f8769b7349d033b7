//! What any store must do, as checks that run against any store.
//!
//! ```text
//! conformance_tests!(MyHarness::new())   one test per check, each with a store of its own
//! ```
//!
//! In reading order:
//! - `writer`: a small runtime: decides commands with the real model and commits what comes of them.
//! - `scenario`: a session's life with everything in it that the model can do.
//! - [`folding`]: rows, events and what is loaded tell the same story, after every commit.
//! - [`commits`]: whole or not at all, in order, by one writer.
//! - [`reads`]: by number, by name, by query.
//! - [`feed`]: from any position without gap or repeat.
//! - [`retention`]: what may go, and what must stay.

pub mod commits;
pub mod feed;
pub mod folding;
pub mod reads;
pub mod retention;
mod scenario;
mod writer;

use std::sync::Arc;

use crate::store::Store;

/// Makes the stores that are checked.
pub trait StoreHarness {
    /// An empty store.
    fn empty(&self) -> Arc<dyn Store>;

    /// Lets go of a store, of which no other handle is left, and opens the same data again.
    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store>;
}

/// Expands to one test per check. The expression makes a [`Harness`], anew for each.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::conformance_tests! { @single $harness;
            folding::stored_rows_are_the_folded_events
            folding::loaded_trees_are_the_live_ones
            folding::everything_is_there_after_reopening
            folding::a_session_goes_on_after_reopening_at_every_point
            folding::waits_are_whole_after_loading
            commits::a_batch_over_several_trees_is_one_commit
            commits::an_empty_batch_changes_nothing
            commits::a_wrong_base_is_refused_and_changes_nothing
            commits::a_wrong_epoch_is_refused_and_changes_nothing
            commits::one_refused_tree_refuses_the_batch
            reads::unknown_things_are_not_there
            reads::tasks_by_number_and_name
            reads::tasks_by_query_and_page
            reads::journals_are_in_the_order_of_answers
            reads::receipts_say_how_far_a_message_came
            reads::earlier_runs_keep_their_endings
            reads::sessions_by_name
            feed::pages_from_every_position
            feed::a_gap_is_told_after_pruning
            retention::what_is_needed_stays
            retention::what_is_over_goes_with_all_below_it
            retention::a_slot_that_is_held_keeps_what_is_above
            retention::keys_stay_taken_under_living_parents
            retention::a_key_does_not_pass_to_the_session
            retention::a_budget_stays_for_what_is_charged_to_it
            retention::a_removed_task_is_not_written_again
            retention::closed_sessions_go_with_their_events
        }
        $crate::conformance_tests! { @parallel $harness;
            commits::of_concurrent_writers_one_wins
            commits::readers_see_whole_commits
        }
    };
    (@single $harness:expr; $($group:ident::$check:ident)*) => {
        $(#[tokio::test]
        async fn $check() {
            $crate::conformance::$group::$check(&$harness).await;
        })*
    };
    (@parallel $harness:expr; $($group:ident::$check:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $check() {
            $crate::conformance::$group::$check(&$harness).await;
        })*
    };
}
