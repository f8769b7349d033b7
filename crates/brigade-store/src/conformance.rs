//! Checks that every store must pass.
//!
//! ```text
//! conformance_tests!(MyHarness::new())         one test per check, each with a store of its own
//! fleet_conformance_tests!(MyHarness::new())   the same for stores that nodes share
//! ```
//!
//! In reading order:
//! - `writer`: a small runtime that decides commands with the real model and commits their events.
//! - `scenario`: the life of one session with every feature of the model.
//! - [`fixture`]: the scenario as the content of a database of an earlier version.
//! - [`folding`]: rows, events and loaded sessions agree after every commit.
//! - [`commits`]: a batch is written whole or not at all, in order, by one writer.
//! - [`message_keys`]: keys and names of messages.
//! - [`reads`]: reads by number, by name and by query.
//! - [`feed`]: pages from any position, without gap or repeat, and with the authors of events.
//! - [`records`]: compare-and-set, expiry, single use, pages and bounds of records.
//! - [`retention`]: `prune` removes finished data and nothing else.
//! - `fleet_nodes`: a node of a fleet. [`fleet`]: leases, claims, releases and hints of nodes.
//!   [`fleet_calls`]: calls between nodes. [`fleet_limits`]: their parts of providers' limits.

pub mod commits;
pub mod feed;
pub mod fixture;
pub mod fleet;
pub mod fleet_calls;
pub mod fleet_lanes;
pub mod fleet_limits;
mod fleet_nodes;
pub mod folding;
pub mod message_keys;
pub mod reads;
pub mod records;
pub mod retention;
mod scenario;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use crate::store::{BoxFuture, Store};

/// Creates the stores for the checks.
pub trait StoreHarness: Sync {
    /// Returns an empty store.
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>>;

    /// Closes a store and opens the same data again. The caller holds no other handle of it.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// Creates the stores for the checks of nodes that share a store.
pub trait FleetHarness: Sync {
    /// Returns an empty store that nodes can join.
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>>;

    /// Returns a handle of the same data, such as another process has.
    fn another_handle<'a>(&'a self, store: &'a Arc<dyn Store>) -> BoxFuture<'a, Arc<dyn Store>>;

    /// Lets a time pass by the clock of leases.
    fn wait(&self, duration: Duration) -> BoxFuture<'_, ()>;

    /// Lets the closed nodes of the store be older by a time.
    fn age_closed_nodes(&self, duration: Duration) -> BoxFuture<'_, ()> {
        self.wait(duration)
    }
}

/// Expands to one test per check. Each test evaluates the expression to get its own
/// [`StoreHarness`].
///
/// [`StoreHarness`]: crate::conformance::StoreHarness
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::conformance_tests! { @single $harness;
            folding::stored_rows_equal_the_folded_events
            folding::loaded_sessions_equal_the_live_ones
            folding::everything_is_there_after_reopening
            folding::a_session_continues_after_reopening_at_every_step
            folding::a_loaded_wait_reports_all_its_tasks
            commits::a_batch_over_several_sessions_is_one_commit
            commits::an_empty_batch_changes_nothing
            commits::a_wrong_base_is_refused_and_changes_nothing
            commits::a_wrong_epoch_is_refused_and_changes_nothing
            commits::one_refused_session_refuses_the_batch
            commits::an_acquired_session_has_one_writer
            commits::a_name_belongs_to_one_session
            message_keys::message_keys_stay_taken_across_reopening
            message_keys::message_keys_have_a_scope
            message_keys::message_keys_go_with_their_task
            message_keys::a_named_receive_survives_reopening
            reads::unknown_ids_are_not_found
            reads::tasks_by_number_and_name
            reads::tasks_by_query_and_page
            reads::journals_are_in_the_order_of_completions
            reads::receipts_report_the_delivery_state
            reads::messages_of_a_task_in_pages
            reads::earlier_runs_keep_their_outcomes
            reads::sessions_by_name
            feed::pages_from_every_position
            feed::moved_sessions_are_read_in_order
            feed::authors_of_events_are_stored
            feed::a_gap_is_reported_after_pruning
            retention::alive_and_uncollected_tasks_stay
            retention::finished_tasks_go_with_their_descendants
            retention::a_held_slot_keeps_its_ancestors
            retention::keys_stay_taken_under_alive_parents
            retention::a_key_does_not_pass_to_the_session
            retention::a_limit_holder_stays_while_it_is_charged
            retention::a_removed_task_is_not_written_again
            retention::closed_sessions_go_with_their_events
            records::a_put_needs_the_expected_version
            records::no_version_is_used_twice
            records::a_removal_returns_the_record_once
            records::an_expired_record_is_absent_for_every_method
            records::expired_records_go_in_bounded_steps
            records::record_pages_are_in_the_order_of_bytes
            records::the_last_record_page_has_no_next
            records::records_survive_reopening
            records::a_full_kind_refuses_another_key
            records::a_prune_removes_no_record
        }
        $crate::conformance_tests! { @parallel $harness;
            commits::one_of_several_concurrent_writers_wins
            commits::readers_see_whole_commits
            records::no_concurrent_put_is_lost
            records::one_of_several_concurrent_callers_gets_a_record
            records::record_pages_are_complete_while_others_write
            records::a_renewed_record_is_not_removed_as_expired
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

/// Expands to one test per check of nodes that share a store. Each test evaluates the expression to get
/// its own [`FleetHarness`].
///
/// [`FleetHarness`]: crate::conformance::FleetHarness
#[macro_export]
macro_rules! fleet_conformance_tests {
    ($harness:expr) => {
        $crate::conformance_tests! { @single $harness;
            fleet::an_open_node_has_its_name_alone
            fleet::a_renewal_extends_the_lease
            fleet::a_closed_node_is_not_renewed
            fleet::an_expired_node_is_fenced
            fleet::the_lanes_of_a_node_take_sessions_of_each_other
            fleet::claims_are_in_the_order_of_their_reasons
            fleet::a_claim_needs_the_labels_of_the_session
            fleet::an_acquisition_needs_the_labels_of_the_session
            fleet::a_released_session_waits_for_its_next_owner
            fleet::a_skipped_session_is_claimed_by_another_node
            fleet::a_release_compares_the_stored_row
            fleet::a_hint_wakes_another_node
            fleet_lanes::closed_nodes_go_with_their_lanes
            fleet_lanes::a_lane_stays_while_it_is_needed
            fleet_calls::a_call_is_answered_once_with_its_events
            fleet_calls::answers_without_events_are_a_commit
            fleet_calls::calls_follow_the_session
            fleet_calls::a_closed_session_is_claimed_for_its_call
            fleet_calls::a_call_for_a_node_has_one_reply
            fleet_calls::a_call_needs_both_sides
            fleet_calls::a_removed_session_has_no_calls
            fleet_limits::nodes_hold_no_more_than_the_limits
            fleet_limits::a_closed_node_holds_nothing
            fleet_limits::an_outdated_report_changes_nothing
            fleet_limits::a_closing_is_seen_by_all_nodes
            fleet_limits::levels_are_moved_and_not_multiplied
            fleet_limits::random_exchanges_stay_within_the_limits
        }
        $crate::conformance_tests! { @parallel $harness;
            fleet::concurrent_claims_share_no_session
        }
    };
}
