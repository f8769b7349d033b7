-- The functions of a fleet: leases, claims and calls. They are replaced at each migration. `{schema}` is
-- replaced by the quoted name of the schema.
--
-- Rows are locked in this order, each kind by ascending keys: nodes, lanes, sessions, calls. A claim and a
-- call hold the row of an open lane or node FOR KEY SHARE. This does not delay commits and renewals, and a
-- close waits for it. So nothing is added to a closed lane.

-- Returns a time in milliseconds.
CREATE OR REPLACE FUNCTION {schema}.to_millis(p_time timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT floor(extract(epoch FROM p_time) * 1000)::bigint $$;

-- Returns a time in microseconds, which is exact.
CREATE OR REPLACE FUNCTION {schema}.to_micros(p_time timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT (extract(epoch FROM p_time) * 1000000)::bigint $$;

-- Returns the timeline of the server, which each promotion of a replica changes, or 0 if the server does not
-- say it: some services have databases without these functions.
CREATE OR REPLACE FUNCTION {schema}.read_timeline() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END $$;

-- Returns false for a lane of an earlier timeline: this server may not have all of its events. So their
-- numbers are not given again.
CREATE OR REPLACE FUNCTION {schema}.is_current(p_timeline bigint) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RETURN p_timeline = 0 OR p_timeline = {schema}.read_timeline(); END $$;

-- Returns the time since which nodes were able to renew their leases: the start of the server, or the
-- first look at it after a promotion.
CREATE OR REPLACE FUNCTION {schema}.find_serving_since() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    timeline constant bigint := {schema}.read_timeline();
    known bigint;
    since bigint;
BEGIN
    SELECT m.value INTO known FROM {schema}.meta AS m WHERE m.name = 'timeline';
    IF known IS DISTINCT FROM timeline THEN
        since := CASE WHEN known IS NULL THEN 0 ELSE {schema}.to_millis(clock_timestamp()) END;
        IF known IS NOT NULL THEN
            -- The numbers of nodes and lanes that this server has not received are not given again.
            PERFORM nextval(pg_get_serial_sequence('{schema}.nodes', 'node')),
                nextval(pg_get_serial_sequence('{schema}.lanes', 'lane'))
                FROM generate_series(1, 1000);
        END IF;
        INSERT INTO {schema}.meta(name, value) VALUES ('timeline', timeline), ('timeline_since', since)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value;
    END IF;
    SELECT m.value INTO since FROM {schema}.meta AS m WHERE m.name = 'timeline_since';
    RETURN greatest(pg_postmaster_start_time(), to_timestamp(since / 1000.0));
END $$;

-- Adds a node with its lanes, unless an open node has the name. Returns whether it has, the node that has
-- the name now, the new lanes, and the time.
CREATE OR REPLACE FUNCTION {schema}.join_node(
    p_name text, p_host text, p_labels text[], p_capacity bigint, p_version text, p_lease_ms bigint,
    p_lanes int
) RETURNS TABLE(is_new boolean, joined bigint, joined_lanes int[], now_ms bigint) LANGUAGE plpgsql AS $$
BEGIN
    -- A promotion after this moment is noticed.
    PERFORM {schema}.find_serving_since();
    LOOP
        INSERT INTO {schema}.nodes AS n (name, host, lease_until, lease_ms, labels, capacity, format, version)
            VALUES (p_name, p_host, clock_timestamp() + p_lease_ms * interval '1 ms', p_lease_ms, p_labels,
                p_capacity, 1, p_version)
            ON CONFLICT (name) WHERE open DO NOTHING
            RETURNING n.node INTO joined;
        is_new := FOUND;
        EXIT WHEN FOUND;
        SELECT n.node INTO joined FROM {schema}.nodes AS n WHERE n.name = p_name AND n.open;
        -- The other node may have been closed meanwhile.
        EXIT WHEN FOUND;
    END LOOP;
    IF is_new THEN
        WITH opened AS (
            INSERT INTO {schema}.lanes(node, timeline)
                SELECT joined, {schema}.read_timeline() FROM generate_series(1, p_lanes) RETURNING lane
        )
        SELECT array_agg(o.lane ORDER BY o.lane) INTO joined_lanes FROM opened AS o;
    END IF;
    now_ms := {schema}.to_millis(clock_timestamp());
    RETURN NEXT;
END $$;

-- Closes nodes whose rows are locked, and their lanes. Removes their calls, and the open calls for them.
CREATE OR REPLACE FUNCTION {schema}.close_nodes(p_nodes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.lanes AS l WHERE l.node = ANY (p_nodes) AND l.node <> 0
        ORDER BY l.lane FOR UPDATE;
    UPDATE {schema}.lanes SET open = false WHERE node = ANY (p_nodes) AND node <> 0;
    UPDATE {schema}.nodes SET open = false, closed_at = clock_timestamp() WHERE node = ANY (p_nodes);
    DELETE FROM {schema}.calls WHERE id IN (
        SELECT c.id FROM {schema}.calls AS c
        WHERE c.asked_by = ANY (p_nodes) OR c.node = ANY (p_nodes) AND c.reply IS NULL
        ORDER BY c.id FOR UPDATE);
END $$;

CREATE OR REPLACE FUNCTION {schema}.leave_node(p_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.nodes AS n WHERE n.node = p_node AND n.open FOR UPDATE;
    IF FOUND THEN
        PERFORM {schema}.close_nodes(ARRAY[p_node]);
    END IF;
END $$;

-- Closes the nodes whose lease is over, and returns them. A node that renews its lease at this moment is
-- skipped. No node is closed before it had the time of its lease for a renewal on this server.
CREATE OR REPLACE FUNCTION {schema}.close_expired() RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    since constant timestamptz := {schema}.find_serving_since();
    checked_at constant timestamptz := clock_timestamp();
    expired bigint[];
BEGIN
    SELECT array_agg(e.node) INTO expired FROM (
        SELECT n.node FROM {schema}.nodes AS n
        WHERE n.open AND n.lease_until <= checked_at
            AND since + n.lease_ms * interval '1 ms' <= checked_at
        ORDER BY n.node FOR UPDATE SKIP LOCKED
    ) AS e;
    IF expired IS NOT NULL THEN
        PERFORM {schema}.close_nodes(expired);
        RETURN QUERY SELECT unnest(expired);
    END IF;
END $$;

-- Makes an open lane the owner of at most `p_most` sessions that need one: those with open calls, those
-- that are due, then those of closed lanes and those that wait for this node, or have waited for another
-- one for too long. Skips locked ones, and those that the node does not want.
--
-- The function of version 2 skips none of these. It stays in a migrated schema, for nodes of that version.
--
-- Statistics may say that most sessions are in a lane that has lost them meanwhile, so no table is
-- read as a whole.
CREATE OR REPLACE FUNCTION {schema}.claim_sessions(
    p_node bigint, p_lane int, p_now bigint, p_most bigint, p_skipped uuid[]
) RETURNS TABLE(claimed_id uuid, claimed_epoch bigint, claimed_seq bigint, claimed_lane int, claimed_pos bigint)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    checked_at constant timestamptz := clock_timestamp();
    own_labels text[];
    other_nodes bigint[];
    -- A lane of these never protects a session again.
    unprotected int[];
    wanted bigint[];
    some_keys bigint[];
    keys bigint[] := '{}';
BEGIN
    SELECT n.labels INTO own_labels FROM {schema}.lanes AS l JOIN {schema}.nodes AS n ON n.node = l.node
        WHERE l.lane = p_lane AND l.open AND n.node = p_node FOR KEY SHARE OF l;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce(array_agg(n.node), '{}') INTO other_nodes FROM {schema}.nodes AS n
        WHERE n.open AND n.node <> p_node;
    SELECT coalesce(array_agg(l.lane), '{}') INTO unprotected FROM {schema}.lanes AS l
        WHERE l.may_own AND (NOT l.open OR l.node = 0);

    SELECT array_agg(DISTINCT c.session) INTO wanted FROM {schema}.calls AS c
        WHERE c.session IS NOT NULL AND c.reply IS NULL;
    IF wanted IS NOT NULL THEN
        SELECT array_agg(f.key) INTO some_keys FROM (
            SELECT s.key FROM {schema}.sessions AS s
            WHERE s.key = ANY (wanted)
                -- A lane that owns only closed sessions is not in `unprotected`.
                AND NOT EXISTS (SELECT FROM {schema}.lanes AS l
                    WHERE l.lane = s.lane AND l.open AND l.node <> 0)
                AND s.required_labels <@ own_labels
                AND (s.next_owner IS NULL OR s.next_owner <> ALL (other_nodes)
                    OR s.next_owner_until <= checked_at)
                AND s.id <> ALL (p_skipped)
            LIMIT p_most FOR NO KEY UPDATE SKIP LOCKED
        ) AS f;
        -- A row that was changed before its lock is checked again, but not by a look into another table.
        SELECT array_agg(s.key) INTO some_keys FROM {schema}.sessions AS s
            WHERE s.key = ANY (some_keys)
                AND NOT EXISTS (SELECT FROM {schema}.lanes AS l
                    WHERE l.lane = s.lane AND l.open AND l.node <> 0);
        keys := keys || coalesce(some_keys, '{}');
    END IF;

    SELECT array_agg(f.key) INTO some_keys FROM (
        SELECT s.key FROM {schema}.sessions AS s
        WHERE s.lane IS NULL AND s.next_due <= p_now AND s.state <> 2
            AND s.required_labels <@ own_labels
            AND (s.next_owner IS NULL OR s.next_owner <> ALL (other_nodes)
                OR s.next_owner_until <= checked_at)
            AND s.id <> ALL (p_skipped)
            AND s.key <> ALL (keys)
        ORDER BY s.next_due LIMIT p_most - cardinality(keys) FOR NO KEY UPDATE SKIP LOCKED
    ) AS f;
    keys := keys || coalesce(some_keys, '{}');

    SELECT array_agg(f.key) INTO some_keys FROM (
        SELECT s.key FROM {schema}.sessions AS s
        WHERE s.lane = ANY (unprotected) AND s.state <> 2
            AND s.required_labels <@ own_labels
            AND (s.next_owner IS NULL OR s.next_owner <> ALL (other_nodes)
                OR s.next_owner_until <= checked_at)
            AND s.id <> ALL (p_skipped)
            AND s.key <> ALL (keys)
        LIMIT p_most - cardinality(keys) FOR NO KEY UPDATE SKIP LOCKED
    ) AS f;
    keys := keys || coalesce(some_keys, '{}');

    -- The nodes that sessions wait for, each by one look into the index: this one and closed ones.
    WITH RECURSIVE targets(node) AS (
        SELECT min(s.next_owner) FROM {schema}.sessions AS s
            WHERE s.lane IS NULL AND s.next_owner IS NOT NULL
        UNION ALL
        SELECT (SELECT min(s.next_owner) FROM {schema}.sessions AS s
            WHERE s.lane IS NULL AND s.next_owner > t.node)
        FROM targets AS t WHERE t.node IS NOT NULL
    )
    SELECT array_agg(t.node) INTO wanted FROM targets AS t WHERE t.node <> ALL (other_nodes);
    IF wanted IS NOT NULL THEN
        SELECT array_agg(f.key) INTO some_keys FROM (
            SELECT s.key FROM {schema}.sessions AS s
            WHERE s.lane IS NULL AND s.next_owner = ANY (wanted) AND s.state <> 2
                AND s.required_labels <@ own_labels
                AND s.id <> ALL (p_skipped)
                AND s.key <> ALL (keys)
            LIMIT p_most - cardinality(keys) FOR NO KEY UPDATE SKIP LOCKED
        ) AS f;
        keys := keys || coalesce(some_keys, '{}');
    END IF;

    SELECT array_agg(f.key) INTO some_keys FROM (
        SELECT s.key FROM {schema}.sessions AS s
        WHERE s.lane IS NULL AND s.next_owner IS NOT NULL AND s.next_owner_until <= checked_at
            AND s.state <> 2 AND s.required_labels <@ own_labels
            AND s.id <> ALL (p_skipped)
            AND s.key <> ALL (keys)
        LIMIT p_most - cardinality(keys) FOR NO KEY UPDATE SKIP LOCKED
    ) AS f;
    keys := keys || coalesce(some_keys, '{}');

    RETURN QUERY
        WITH changed AS (
            UPDATE {schema}.sessions AS s
                SET epoch = s.epoch + 1, lane = p_lane, next_due = NULL, next_owner = NULL
                WHERE s.key = ANY (keys)
                RETURNING s.key, s.id, s.epoch, s.seq, s.last_lane, s.last_pos
        )
        SELECT c.id, c.epoch, c.seq, c.last_lane, c.last_pos FROM changed AS c
        ORDER BY array_position(keys, c.key);

    IF cardinality(keys) < p_most THEN
        UPDATE {schema}.lanes SET may_own = false WHERE lane IN (
            SELECT l.lane FROM {schema}.lanes AS l
            WHERE l.may_own AND NOT l.open
                AND NOT EXISTS (SELECT FROM {schema}.sessions AS s WHERE s.lane = l.lane AND s.state <> 2)
            LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
END $$;

-- Ends the ownership of a session, if its row and the generation of the lane are as given.
CREATE OR REPLACE FUNCTION {schema}.release_session(
    p_lane int, p_generation bigint, p_id uuid, p_epoch bigint, p_seq bigint, p_next_due bigint,
    p_next_owner bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.lanes AS l WHERE l.lane = p_lane AND l.open AND l.generation = p_generation
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The time is `NEXT_OWNER_TIME` of the contract.
    UPDATE {schema}.sessions SET lane = NULL, next_due = p_next_due, next_owner = p_next_owner,
            next_owner_until = CASE WHEN p_next_owner IS NOT NULL
                THEN clock_timestamp() + interval '5 s' END
        WHERE id = p_id AND lane = p_lane AND epoch = p_epoch AND seq = p_seq;
    RETURN FOUND;
END $$;

-- Stores a call, unless it is stored already or its asker is closed. Returns whether its session or open
-- node exists.
CREATE OR REPLACE FUNCTION {schema}.ask_call(
    p_id uuid, p_session uuid, p_node bigint, p_asked_by bigint, p_request bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    target bigint;
BEGIN
    PERFORM FROM {schema}.nodes AS n WHERE n.node IN (p_asked_by, p_node) AND n.open
        ORDER BY n.node FOR KEY SHARE;
    IF p_session IS NOT NULL THEN
        SELECT s.key INTO target FROM {schema}.sessions AS s WHERE s.id = p_session;
    ELSE
        SELECT n.node INTO target FROM {schema}.nodes AS n WHERE n.node = p_node AND n.open;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM {schema}.nodes AS n WHERE n.node = p_asked_by AND n.open) THEN
        INSERT INTO {schema}.calls(id, session, node, asked_by, request)
            VALUES (p_id, CASE WHEN p_session IS NOT NULL THEN target END,
                CASE WHEN p_session IS NULL THEN target END, p_asked_by, p_request)
            ON CONFLICT (id) DO NOTHING;
    END IF;
    RETURN true;
END $$;

-- Removes nodes that were closed more than a day ago, and their lanes that own no open session and have no
-- event any more. Readers treat the events of a removed lane as read.
CREATE OR REPLACE FUNCTION {schema}.remove_closed_nodes() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    day_ago constant timestamptz := clock_timestamp() - interval '1 day';
BEGIN
    IF EXISTS (SELECT FROM {schema}.nodes AS n JOIN {schema}.meta AS m ON m.name = 'version_3_at'
        WHERE n.open AND n.joined_at < to_timestamp(m.value / 1000.0))
    THEN
        RETURN;
    END IF;
    DELETE FROM {schema}.lanes WHERE lane IN (
        SELECT l.lane FROM {schema}.lanes AS l JOIN {schema}.nodes AS n ON n.node = l.node
        WHERE NOT l.open AND l.node <> 0 AND NOT n.open AND n.closed_at < day_ago
            AND l.pruned_to >= l.head
            AND NOT EXISTS (SELECT FROM {schema}.sessions AS s WHERE s.lane = l.lane AND s.state <> 2)
        ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED);
    DELETE FROM {schema}.nodes AS n WHERE NOT n.open AND n.closed_at < day_ago
        AND NOT EXISTS (SELECT FROM {schema}.lanes AS l WHERE l.node = n.node);
END $$;
