//! Makes states equal that behave alike, so that fewer are visited. Only the model without a fault
//! is reduced, since the arguments below need its rules.

use super::state::{FleetState, No, Operation};

/// Replaces a state by one that behaves alike.
pub(super) fn reduce(state: &mut FleetState, calls: usize) {
    drop_refused(state);
    drop_fenced_memory(state);
    reset_connections(state);
    // Sessions with and without calls are not alike.
    if calls == 0 || calls == state.sessions.len() {
        sort_sessions(state);
    }
    sort_nodes(state);
}

/// Removes late requests that the database will never store. Lanes are not opened again, and
/// connections, epochs and sequence numbers only grow.
fn drop_refused(state: &mut FleetState) {
    let FleetState { late, lanes, sessions, .. } = state;
    late.retain(|late| {
        let request = &late.request;
        let lane = &lanes[request.lane];
        let session = &sessions[request.session];
        let is_current = lane.open && session.epoch == request.epoch;
        let is_next = lane.connection == request.connection
            && session.seq == request.base
            && session.owner == Some(request.lane);
        is_current && (is_next || request.operation == Operation::Acquire)
    });
}

/// Lets a node learn at once that its lane is closed, unless it has to resolve a request:
/// everything else that it could do is refused.
fn drop_fenced_memory(state: &mut FleetState) {
    for node in &mut state.nodes {
        if node.in_doubt.is_none() && node.lane.is_some_and(|lane| !state.lanes[lane].open) {
            node.drop_lane();
        }
    }
}

/// Counts connections from zero again where no late request can compare them.
fn reset_connections(state: &mut FleetState) {
    for (no, lane) in state.lanes.iter_mut().enumerate() {
        if state.late.iter().all(|late| late.request.lane != no) {
            lane.connection = 0;
        }
    }
}

/// Sessions and nodes are sorted by what does not depend on their numbers. Equal ones stay in their
/// order, which costs some reduction and no correctness.
fn sort_sessions(state: &mut FleetState) {
    let key = |session: No| {
        let row = &state.sessions[session];
        let holders = state.nodes.iter().filter(|node| node.held[session].is_some()).count();
        let readers = state.nodes.iter().filter(|node| node.inbox[session]).count();
        (row.epoch, row.seq, row.call, row.owner.is_some(), holders, readers)
    };
    let Some(new_names) = sort_by(state.sessions.len(), key) else { return };
    permute(&mut state.sessions, &new_names);
    for lane in &mut state.lanes {
        for event in &mut lane.events {
            event.session = new_names[event.session];
        }
    }
    for node in &mut state.nodes {
        permute(&mut node.held, &new_names);
        permute(&mut node.inbox, &new_names);
        if let Some(request) = &mut node.in_doubt {
            request.session = new_names[request.session];
        }
    }
    for late in &mut state.late {
        late.request.session = new_names[late.request.session];
    }
    state.late.sort_unstable();
}

/// Renames nodes together with their lanes: node and lane have the same number here.
fn sort_nodes(state: &mut FleetState) {
    let key = |no: No| {
        let node = &state.nodes[no];
        let owned: Vec<bool> = state.sessions.iter().map(|row| row.owner == Some(no)).collect();
        // A request names its lane last. It decides only between nodes that are equal without it.
        (&state.lanes[no], node.lane.is_some(), &node.held, &node.inbox, owned, node.in_doubt)
    };
    let Some(new_names) = sort_by(state.nodes.len(), key) else { return };
    permute(&mut state.nodes, &new_names);
    permute(&mut state.lanes, &new_names);
    for node in &mut state.nodes {
        node.lane = node.lane.map(|lane| new_names[lane]);
        if let Some(request) = &mut node.in_doubt {
            request.lane = new_names[request.lane];
        }
    }
    for session in &mut state.sessions {
        session.owner = session.owner.map(|lane| new_names[lane]);
    }
    for late in &mut state.late {
        late.request.lane = new_names[late.request.lane];
    }
    state.late.sort_unstable();
}

/// Returns the new name of each number, or `None` if the order is right already.
fn sort_by<K: Ord>(count: usize, key: impl Fn(No) -> K) -> Option<Vec<No>> {
    let keys: Vec<K> = (0..count).map(key).collect();
    if keys.is_sorted() {
        return None;
    }
    let mut order: Vec<No> = (0..count).collect();
    order.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
    let mut new_names = vec![0; count];
    for (new, old) in order.into_iter().enumerate() {
        new_names[old] = new;
    }
    Some(new_names)
}

fn permute<T: Clone>(values: &mut [T], new_names: &[No]) {
    let old = values.to_vec();
    for (value, new) in old.into_iter().zip(new_names) {
        values[*new] = value;
    }
}
