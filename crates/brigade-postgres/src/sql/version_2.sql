-- The additions of version 2: leases, claims and calls. Programs of version 1 continue to work with them.

-- The load is the one that the node reported with its last renewal.
ALTER TABLE {schema}.nodes
    ADD COLUMN lease_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN closed_at timestamptz,
    ADD COLUMN loaded_sessions bigint NOT NULL DEFAULT 0,
    ADD COLUMN running_tasks bigint NOT NULL DEFAULT 0,
    ADD COLUMN skew_ms bigint NOT NULL DEFAULT 0;

-- `may_own` is false if the lane is closed and owns no session that is not closed.
ALTER TABLE {schema}.lanes ADD COLUMN may_own boolean NOT NULL DEFAULT true;
CREATE INDEX lanes_unprotected ON {schema}.lanes(lane) WHERE may_own AND (NOT open OR node = 0);
CREATE INDEX lanes_of_node ON {schema}.lanes(node) WHERE node <> 0;

-- `next_due` is the time at which a session without an owner needs one, and `next_owner` the node that is to
-- be it.
ALTER TABLE {schema}.sessions
    ADD COLUMN next_due bigint,
    ADD COLUMN next_owner bigint,
    ADD COLUMN required_labels text[] NOT NULL DEFAULT '{}';
CREATE INDEX sessions_due ON {schema}.sessions(next_due) WHERE lane IS NULL AND next_due IS NOT NULL;
CREATE INDEX sessions_next_owner ON {schema}.sessions(next_owner)
    WHERE lane IS NULL AND next_owner IS NOT NULL;
-- Closed sessions need no owner, so the index of owned ones is without them.
CREATE INDEX sessions_owned ON {schema}.sessions(lane) WHERE lane IS NOT NULL AND state <> 2;
DROP INDEX {schema}.sessions_lane;

-- Requests of nodes to the owner of a session, or to a node.
CREATE TABLE {schema}.calls(
    id uuid PRIMARY KEY,
    session bigint,
    node bigint,
    asked_by bigint NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    request bytea NOT NULL,
    reply bytea,
    CHECK ((session IS NULL) <> (node IS NULL))
);
CREATE INDEX calls_session ON {schema}.calls(session) WHERE reply IS NULL AND session IS NOT NULL;
CREATE INDEX calls_node ON {schema}.calls(node) WHERE reply IS NULL AND node IS NOT NULL;
CREATE INDEX calls_asked_by ON {schema}.calls(asked_by);
