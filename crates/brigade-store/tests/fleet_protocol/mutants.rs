//! Wrong protocols. Each must break the property that it endangers; otherwise the model is blind.

use crate::exhaustive::assert_breaks;
use crate::feed::{self, FeedModel, FeedMutant};
use crate::leases::{self, LeaseModel, LeaseMutant};
use crate::wakeups::{self, WakeupModel, WakeupMutant};
use crate::writers::mutant::WriterMutant;
use crate::writers::{WriterBounds, WriterModel, properties};

const PAIR: WriterBounds =
    WriterBounds { nodes: 2, sessions: 1, epochs: 3, events: 2, calls: 1, losses: 1, lanes: 2 };

fn assert_writers_break(mutants: &[WriterMutant], properties: &[&'static str]) {
    let model = WriterModel { bounds: PAIR, mutants: mutants.to_vec(), is_reduced: false };
    assert_breaks(&format!("{mutants:?}"), model, properties);
}

const BOTH_LEASE_PROPERTIES: [&str; 2] = [leases::NO_OVERLAP, leases::OPEN_WHILE_PERFORMING];

fn leases(mutant: LeaseMutant) -> LeaseModel {
    LeaseModel {
        nodes: 2,
        sessions: 1,
        epochs: 2,
        ttl: 2,
        margin: 1,
        jumps: 0,
        mutant: Some(mutant),
    }
}

fn assert_feed_breaks(mutant: FeedMutant, property: &'static str) {
    let model = FeedModel { lanes: 2, sessions: 1, moves: 2, events: 3, mutant: Some(mutant) };
    assert_breaks(&format!("{mutant:?}"), model, &[property]);
}

#[test]
fn the_epoch_comes_from_the_acquisition() {
    assert_writers_break(
        &[WriterMutant::EpochFromRow],
        &[properties::ONE_LANE_PER_EPOCH, properties::FENCED_ONLY_BY_CLOSING],
    );
}

#[test]
fn a_commit_looks_at_the_lane() {
    assert_writers_break(&[WriterMutant::NoLaneCheck], &[properties::CLOSED_LANE_IS_FINAL]);
}

#[test]
fn a_call_is_answered_with_its_effect() {
    assert_writers_break(
        &[WriterMutant::AnswerAlone],
        &[properties::ANSWER_WITH_EFFECT, properties::ONE_EFFECT],
    );
}

#[test]
fn an_answer_looks_at_the_call() {
    assert_writers_break(
        &[WriterMutant::NoCallCheck],
        &[properties::ONE_EFFECT, properties::ONE_ANSWER],
    );
}

#[test]
fn a_new_connection_takes_the_lane() {
    assert_writers_break(
        &[WriterMutant::NoConnectionCheck],
        &[
            properties::DENIED_IS_NOT_STORED,
            properties::DENIED_RELEASE,
            properties::FENCED_ONLY_BY_CLOSING,
        ],
    );
}

#[test]
fn a_commit_in_doubt_is_looked_for_by_its_position() {
    assert_writers_break(&[WriterMutant::DoubtBySeq], &[properties::ACKNOWLEDGED_IS_STORED]);
}

#[test]
fn a_node_acquires_again_what_it_does_not_know() {
    assert_writers_break(&[WriterMutant::NoSecondAcquisition], &[properties::HELD_OR_FREE]);
}

#[test]
fn a_acquisition_compares_the_epoch() {
    assert_writers_break(
        &[WriterMutant::AcquireWithoutEpoch],
        &[properties::FENCED_ONLY_BY_CLOSING],
    );
}

/// Each of these comparisons alone decides nothing within these bounds, since the lane and the
/// connection already do. Two losses let a late request meet a second acquisition.
#[test]
fn one_comparison_less_breaks_nothing() {
    use WriterMutant::{NoEpochCheck, NoOwnerCheck, NoSeqCheck};
    let bounds = WriterBounds { calls: 0, losses: 2, ..PAIR };
    for mutants in [vec![], vec![NoOwnerCheck], vec![NoEpochCheck], vec![NoSeqCheck]] {
        let title = format!("{mutants:?}");
        assert_breaks(&title, WriterModel { bounds, mutants, is_reduced: false }, &[]);
    }
}

#[test]
fn comparisons_are_the_second_line() {
    use WriterMutant::{NoConnectionCheck, NoEpochCheck, NoLaneCheck, NoOwnerCheck, NoSeqCheck};
    assert_writers_break(
        &[NoConnectionCheck, NoSeqCheck],
        &[
            properties::CONTIGUOUS_SEQ,
            properties::DENIED_IS_NOT_STORED,
            properties::DENIED_RELEASE,
            properties::FENCED_ONLY_BY_CLOSING,
        ],
    );
    assert_writers_break(&[NoLaneCheck, NoOwnerCheck], &[properties::CLOSED_LANE_IS_FINAL]);
    assert_writers_break(&[NoLaneCheck, NoEpochCheck], &[properties::CLOSED_LANE_IS_FINAL]);
    assert_writers_break(
        &[NoLaneCheck, NoOwnerCheck, NoEpochCheck],
        &[properties::CLOSED_LANE_IS_FINAL, properties::FENCED_ONLY_BY_CLOSING],
    );
}

#[test]
fn a_lease_counts_from_the_sending() {
    assert_breaks("CountFromAnswer", leases(LeaseMutant::CountFromAnswer), &BOTH_LEASE_PROPERTIES);
}

#[test]
fn a_resumed_node_looks_at_its_clock() {
    assert_breaks("UncheckedResume", leases(LeaseMutant::UncheckedResume), &BOTH_LEASE_PROPERTIES);
}

#[test]
fn a_session_is_acquired_after_its_lane_is_closed() {
    assert_breaks(
        "AcquireWithoutClosing",
        leases(LeaseMutant::AcquireWithoutClosing),
        &[leases::NO_OVERLAP],
    );
}

#[test]
fn a_closed_lane_stays_closed() {
    assert_breaks("RenewalOpensLane", leases(LeaseMutant::RenewalOpensLane), &[leases::NO_OVERLAP]);
}

#[test]
fn performers_halt_before_the_lease_ends() {
    let model = LeaseModel { margin: 0, mutant: None, ..leases(LeaseMutant::CountFromAnswer) };
    assert_breaks("no margin", model, &BOTH_LEASE_PROPERTIES);
}

#[test]
fn the_margin_is_longer_than_a_jump_of_the_clock() {
    let model = LeaseModel { jumps: 1, mutant: None, ..leases(LeaseMutant::CountFromAnswer) };
    assert_breaks("a jump of the database's clock", model, &BOTH_LEASE_PROPERTIES);
}

#[test]
fn events_of_a_moved_session_have_after() {
    assert_feed_breaks(FeedMutant::NoAfter, feed::IN_ORDER);
}

#[test]
fn a_session_that_comes_back_has_after() {
    assert_feed_breaks(FeedMutant::AfterOnFirstVisit, feed::IN_ORDER);
}

#[test]
fn a_serial_number_is_no_cursor() {
    let mutant = Some(FeedMutant::SerialCursor);
    let model = FeedModel { lanes: 2, sessions: 2, moves: 0, events: 1, mutant };
    assert_breaks("SerialCursor", model, &[feed::NONE_LOST, feed::ALL_READ]);
}

#[test]
fn hints_are_not_enough() {
    for mutant in [WakeupMutant::HintsOnly, WakeupMutant::ReliableHintsOnly] {
        let model = WakeupModel { nodes: 2, sessions: 1, releases: 0, mutant: Some(mutant) };
        assert_breaks(&format!("{mutant:?}"), model, &[wakeups::ANSWERED, wakeups::REPLY_SEEN]);
    }
}
