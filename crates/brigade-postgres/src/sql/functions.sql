-- The functions of this version. They are replaced at each migration. `{schema}` is replaced by the
-- quoted name of the schema.
--
-- A function raises one of these conditions:
--   BG001: another writer owns the session, or the lane is closed or outdated
--   BG002: the name of a session is taken; the detail is the name
--   BG003: a kind of records is full
--   BG004: the events of a day cannot be removed yet
--   BG005: calls have a reply, or must exist and were removed; the detail names them, separated by commas

-- Writes a batch. Arrays with the same prefix describe one kind of rows: `s_` sessions, `t_` tasks, `r_`
-- ended runs, `j_` journal entries, `m_` messages, `e_` events, `a_` answers to calls. `_part` is the index of
-- a row's session. Returns the position of the first event.
--
-- The function of version 1 has no answers. It stays in a migrated schema, for nodes of that version.
CREATE OR REPLACE FUNCTION {schema}.commit_batch(
    p_lane int, p_generation bigint,
    s_id uuid[], s_name text[], s_state smallint[], s_epoch bigint[], s_base bigint[], s_seq bigint[],
    s_opened_at bigint[], s_now bigint[], s_body bytea[],
    t_part int[], t_no bigint[], t_new boolean[], t_owner bigint[], t_owner_run bigint[],
    t_residency smallint[], t_name text[], t_key bytea[], t_ended_at bigint[], t_limited_by bigint[],
    t_body bytea[],
    r_part int[], r_task bigint[], r_run bigint[], r_body bytea[],
    j_part int[], j_task bigint[], j_seq bigint[], j_body bytea[],
    m_part int[], m_no bigint[], m_recipient bigint[], m_unread boolean[], m_key bytea[],
    m_key_run bigint[], m_sender bigint[], m_body bytea[],
    e_part int[], e_seq bigint[], e_at bigint[], e_author text[], e_body bytea[],
    a_id uuid[], a_reply bytea[], a_must_exist boolean[]
) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = 0 AS $$
DECLARE
    event_count constant bigint := cardinality(e_part);
    before_first bigint;
    lane_timeline bigint;
    keys bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(s_id)]);
    after_lanes int[] := array_fill(NULL::int, ARRAY[cardinality(s_id)]);
    after_positions bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(s_id)]);
    stored record;
    new_key bigint;
    changed bigint;
    closed_calls text;
BEGIN
    UPDATE {schema}.lanes SET head = head + event_count WHERE lane = p_lane AND open AND generation = p_generation
        RETURNING head - event_count, timeline INTO before_first, lane_timeline;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lane % is closed, or has a later writer', p_lane USING ERRCODE = 'BG001';
    ELSIF NOT {schema}.is_current(lane_timeline) THEN
        RAISE EXCEPTION 'lane % was opened before a replica was promoted', p_lane USING ERRCODE = 'BG001';
    END IF;

    -- All writers lock sessions in the order of their keys.
    FOR stored IN
        SELECT given.part, s.key, s.lane, s.epoch, s.seq, s.last_lane, s.last_pos
        FROM unnest(s_id) WITH ORDINALITY AS given(id, part)
        JOIN {schema}.sessions AS s ON s.id = given.id
        ORDER BY s.key FOR NO KEY UPDATE OF s
    LOOP
        IF stored.seq <> s_base[stored.part] THEN
            RAISE EXCEPTION '% is at %, not at %', s_id[stored.part], stored.seq, s_base[stored.part]
                USING ERRCODE = 'BG001';
        ELSIF stored.epoch <> s_epoch[stored.part] OR stored.lane IS DISTINCT FROM p_lane THEN
            RAISE EXCEPTION '% has another writer', s_id[stored.part] USING ERRCODE = 'BG001';
        END IF;
        keys[stored.part] := stored.key;
        IF stored.last_lane <> p_lane THEN
            after_lanes[stored.part] := stored.last_lane;
            after_positions[stored.part] := stored.last_pos;
        END IF;
    END LOOP;

    FOR part IN 1 .. cardinality(s_id) LOOP
        CONTINUE WHEN keys[part] IS NOT NULL;
        IF s_base[part] <> 0 THEN
            RAISE EXCEPTION '% is not stored', s_id[part] USING ERRCODE = 'BG001';
        ELSIF EXISTS (SELECT FROM {schema}.sessions WHERE name = s_name[part] AND state <> 2) THEN
            RAISE EXCEPTION 'the name of % is taken', s_id[part]
                USING ERRCODE = 'BG002', DETAIL = s_name[part];
        END IF;
        BEGIN
            INSERT INTO {schema}.sessions(id, name, state, lane, epoch, seq, last_lane, last_pos,
                    opened_at, body)
                VALUES (s_id[part], s_name[part], s_state[part], p_lane, s_epoch[part], 0, p_lane, 0,
                    s_opened_at[part], s_body[part])
                RETURNING key INTO new_key;
        EXCEPTION WHEN unique_violation THEN
            -- Another writer has opened a session of the name at the same moment.
            RAISE EXCEPTION 'the name of % is taken', s_id[part]
                USING ERRCODE = 'BG002', DETAIL = s_name[part];
        END;
        keys[part] := new_key;
    END LOOP;

    IF cardinality(a_id) > 0 THEN
        PERFORM FROM {schema}.calls AS c WHERE c.id = ANY (a_id) ORDER BY c.id FOR UPDATE;
        SELECT string_agg(a.id::text, ',' ORDER BY a.no) INTO closed_calls
            FROM unnest(a_id, a_must_exist) WITH ORDINALITY AS a(id, must_exist, no)
            LEFT JOIN {schema}.calls AS c ON c.id = a.id
            WHERE c.reply IS NOT NULL OR a.must_exist AND c.id IS NULL;
        IF closed_calls IS NOT NULL THEN
            RAISE EXCEPTION 'calls have a reply or were removed'
                USING ERRCODE = 'BG005', DETAIL = closed_calls;
        END IF;
        UPDATE {schema}.calls AS c SET reply = a.reply
            FROM unnest(a_id, a_reply) AS a(id, reply) WHERE c.id = a.id;
    END IF;

    UPDATE {schema}.sessions AS s
        SET state = given.state, seq = given.seq, body = given.body,
            last_lane = CASE WHEN given.last_pos IS NULL THEN s.last_lane ELSE p_lane END,
            last_pos = coalesce(given.last_pos, s.last_pos),
            closed_at = CASE WHEN given.state = 2 THEN given.now END
        FROM (
            SELECT part.key, part.state, part.seq, part.now, part.body, written.last_pos
            FROM unnest(keys, s_state, s_seq, s_now, s_body) WITH ORDINALITY
                AS part(key, state, seq, now, body, no)
            LEFT JOIN (
                SELECT e.part, before_first + max(e.no) AS last_pos
                FROM unnest(e_part) WITH ORDINALITY AS e(part, no) GROUP BY e.part
            ) AS written ON written.part = part.no
        ) AS given
        WHERE s.key = given.key;

    IF cardinality(r_part) > 0 THEN
        INSERT INTO {schema}.runs(session, task, run, body)
            SELECT keys[part], task, run, body FROM unnest(r_part, r_task, r_run, r_body)
                AS r(part, task, run, body)
            ON CONFLICT (session, task, run) DO UPDATE SET body = excluded.body;
    END IF;

    INSERT INTO {schema}.tasks(session, no, owner, owner_run, residency, name, idempotency_key, ended_at,
            limited_by, body)
        SELECT keys[part], no, owner, owner_run, residency, name, key, ended_at, limited_by, body
        FROM unnest(t_part, t_no, t_new, t_owner, t_owner_run, t_residency, t_name, t_key, t_ended_at,
                t_limited_by, t_body)
            AS t(part, no, new, owner, owner_run, residency, name, key, ended_at, limited_by, body)
        WHERE new;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed < cardinality(t_no) THEN
        new_key := cardinality(t_no) - changed;
        UPDATE {schema}.tasks AS target
            SET owner = t.owner, owner_run = t.owner_run, residency = t.residency, name = t.name,
                ended_at = t.ended_at, limited_by = t.limited_by, body = t.body
            FROM unnest(t_part, t_no, t_new, t_owner, t_owner_run, t_residency, t_name, t_ended_at,
                    t_limited_by, t_body)
                AS t(part, no, new, owner, owner_run, residency, name, ended_at, limited_by, body)
            WHERE NOT t.new AND target.session = keys[t.part] AND target.no = t.no;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed <> new_key THEN
            RAISE EXCEPTION 'a task was removed' USING ERRCODE = 'BG001';
        END IF;
    END IF;

    IF cardinality(j_part) > 0 THEN
        INSERT INTO {schema}.journal(session, task, seq, body)
            SELECT keys[part], task, seq, body FROM unnest(j_part, j_task, j_seq, j_body)
                AS j(part, task, seq, body);
    END IF;

    IF cardinality(m_part) > 0 THEN
        -- A later row of the same message replaces an earlier one.
        INSERT INTO {schema}.messages(session, no, recipient, unread, idempotency_key, key_run, sender,
                body)
            SELECT DISTINCT ON (part, no) keys[part], no, recipient, unread, key, key_run, sender, body
            FROM unnest(m_part, m_no, m_recipient, m_unread, m_key, m_key_run, m_sender, m_body)
                WITH ORDINALITY AS m(part, no, recipient, unread, key, key_run, sender, body, row)
            ORDER BY part, no, row DESC
            ON CONFLICT (session, no) DO UPDATE SET unread = excluded.unread, body = excluded.body;
    END IF;

    IF event_count > 0 THEN
        INSERT INTO {schema}.events(lane, pos, session, seq, at, after_lane, after_pos, author, body)
            SELECT p_lane, before_first + no, keys[part], seq, at,
                CASE WHEN seq = s_base[part] + 1 THEN after_lanes[part] END,
                CASE WHEN seq = s_base[part] + 1 THEN after_positions[part] END,
                author, body
            FROM unnest(e_part, e_seq, e_at, e_author, e_body) WITH ORDINALITY
                AS e(part, seq, at, author, body, no);
        INSERT INTO {schema}.event_spans(session, lane, last_pos, first_pos, at)
            SELECT keys[part], p_lane, before_first + max(no), before_first + min(no), min(at)
            FROM unnest(e_part, e_at) WITH ORDINALITY AS e(part, at, no)
            GROUP BY part, at / 86400000;
    END IF;
    RETURN before_first + 1;
END $$;

-- Puts a record. `p_expected` is NULL for any state, 0 for no record, or a version. Returns whether the
-- record was stored, and its version or the record that is in the way.
CREATE OR REPLACE FUNCTION {schema}.put_record(
    p_kind text, p_key bytea, p_value bytea, p_expires_at bigint, p_expected bigint, p_now bigint,
    p_most bigint
) RETURNS TABLE(stored boolean, version bigint, expires_at bigint, value bytea) LANGUAGE plpgsql AS $$
DECLARE
    existing record;
    is_there boolean;
BEGIN
    LOOP
        SELECT r.version, r.expires_at, r.value INTO existing FROM {schema}.records AS r
            WHERE r.kind = p_kind AND r.key = p_key FOR UPDATE;
        is_there := FOUND AND (existing.expires_at IS NULL OR existing.expires_at > p_now);
        IF p_expected = 0 AND is_there OR p_expected > 0 AND NOT (is_there AND existing.version = p_expected)
        THEN
            IF is_there THEN
                RETURN QUERY SELECT false, existing.version, existing.expires_at, existing.value;
            ELSE
                RETURN QUERY SELECT false, NULL::bigint, NULL::bigint, NULL::bytea;
            END IF;
            RETURN;
        END IF;
        IF existing.version IS NOT NULL THEN
            RETURN QUERY UPDATE {schema}.records AS r
                SET version = nextval('{schema}.record_versions'), expires_at = p_expires_at,
                    value = p_value
                WHERE r.kind = p_kind AND r.key = p_key
                RETURNING true, r.version, NULL::bigint, NULL::bytea;
            RETURN;
        END IF;
        IF (SELECT count(*) FROM {schema}.records AS r WHERE r.kind = p_kind) >= p_most THEN
            DELETE FROM {schema}.records AS r WHERE r.kind = p_kind AND r.key = (
                SELECT o.key FROM {schema}.records AS o WHERE o.kind = p_kind AND o.expires_at <= p_now
                ORDER BY o.expires_at LIMIT 1);
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the kind % is full', p_kind USING ERRCODE = 'BG003';
            END IF;
        END IF;
        RETURN QUERY INSERT INTO {schema}.records AS r (kind, key, version, expires_at, value)
            VALUES (p_kind, p_key, nextval('{schema}.record_versions'), p_expires_at, p_value)
            ON CONFLICT (kind, key) DO NOTHING
            RETURNING true, r.version, NULL::bigint, NULL::bytea;
        -- Another caller has put the record at the same time if there is no row.
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Removes a record of a version, or of any version if it is NULL. Returns whether this call removed it,
-- and the record.
CREATE OR REPLACE FUNCTION {schema}.remove_record(
    p_kind text, p_key bytea, p_expected bigint, p_now bigint
) RETURNS TABLE(removed boolean, version bigint, expires_at bigint, value bytea) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY DELETE FROM {schema}.records AS r
        WHERE r.kind = p_kind AND r.key = p_key AND (r.expires_at IS NULL OR r.expires_at > p_now)
            AND (p_expected IS NULL OR r.version = p_expected)
        RETURNING true, r.version, r.expires_at, r.value;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, r.version, r.expires_at, r.value FROM {schema}.records AS r
            WHERE r.kind = p_kind AND r.key = p_key AND (r.expires_at IS NULL OR r.expires_at > p_now);
    END IF;
END $$;

-- Removes one task with its journal, runs and messages. Its key stays taken while its parent is alive.
CREATE OR REPLACE FUNCTION {schema}.remove_task(p_session bigint, p_no bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.key_marks(session, owner, no, owner_run, idempotency_key)
        SELECT t.session, t.owner, t.no, t.owner_run, t.idempotency_key FROM {schema}.tasks AS t
        WHERE t.session = p_session AND t.no = p_no AND t.idempotency_key IS NOT NULL
            AND (t.owner = 0 OR 0 = (SELECT parent.residency FROM {schema}.tasks AS parent
                WHERE parent.session = p_session AND parent.no = t.owner))
        ON CONFLICT (session, owner, no) DO NOTHING;
    DELETE FROM {schema}.tasks WHERE session = p_session AND no = p_no;
    DELETE FROM {schema}.key_marks WHERE session = p_session AND owner = p_no;
    DELETE FROM {schema}.journal WHERE session = p_session AND task = p_no;
    DELETE FROM {schema}.runs WHERE session = p_session AND task = p_no;
    DELETE FROM {schema}.messages WHERE session = p_session AND recipient = p_no;
END $$;

-- Removes at most `p_most` tasks of a subtree, children first. The subtree stays if a task in it is alive,
-- lingers or limits a kept task.
CREATE OR REPLACE FUNCTION {schema}.remove_subtree(p_session bigint, p_no bigint, p_most bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    subtree bigint[];
    removed bigint := 0;
    task bigint;
BEGIN
    WITH RECURSIVE members(no) AS (
        SELECT p_no
        UNION ALL
        SELECT t.no FROM members JOIN {schema}.tasks AS t
            ON t.session = p_session AND t.owner = members.no
    )
    SELECT array_agg(no ORDER BY no DESC) INTO subtree FROM members;
    IF EXISTS (SELECT FROM {schema}.tasks AS t WHERE t.session = p_session AND t.no = ANY (subtree)
            AND t.residency < 2)
        OR EXISTS (SELECT FROM {schema}.tasks AS t WHERE t.session = p_session
            AND t.limited_by = ANY (subtree))
    THEN
        RETURN 0;
    END IF;
    FOREACH task IN ARRAY subtree LOOP
        EXIT WHEN removed = p_most;
        PERFORM {schema}.remove_task(p_session, task);
        removed := removed + 1;
    END LOOP;
    RETURN removed;
END $$;

-- Removes at most `p_most` tasks that finished until a time, after a place in the order of their ends.
-- Returns the number of removed tasks and the next place, or none at the end.
CREATE OR REPLACE FUNCTION {schema}.prune_tasks(
    p_until bigint, p_ended_at bigint, p_session bigint, p_no bigint, p_most bigint
) RETURNS TABLE(removed bigint, next_ended_at bigint, next_session bigint, next_no bigint)
LANGUAGE plpgsql AS $$
DECLARE
    task record;
    count bigint;
    last_ended_at bigint := p_ended_at;
    last_session bigint := p_session;
    last_no bigint := p_no;
    examined bigint := 0;
BEGIN
    removed := 0;
    FOR task IN
        SELECT t.ended_at, t.session, t.no FROM {schema}.tasks AS t
        WHERE t.residency = 3 AND t.ended_at <= p_until
            AND (t.ended_at, t.session, t.no) > (p_ended_at, p_session, p_no)
        ORDER BY t.ended_at, t.session, t.no LIMIT p_most
    LOOP
        examined := examined + 1;
        -- A commit that holds the session may open the task again. The next prune examines it again.
        PERFORM FROM {schema}.sessions AS s WHERE s.key = task.session FOR NO KEY UPDATE SKIP LOCKED;
        -- The subtree of an earlier task may have contained it.
        IF FOUND AND EXISTS (SELECT FROM {schema}.tasks AS t WHERE t.session = task.session
            AND t.no = task.no AND t.residency = 3 AND t.ended_at <= p_until)
        THEN
            count := {schema}.remove_subtree(task.session, task.no, p_most - removed);
            removed := removed + count;
        END IF;
        IF removed = p_most THEN
            -- A part of this subtree may remain, so the next call examines it again.
            next_ended_at := last_ended_at;
            next_session := last_session;
            next_no := last_no;
            RETURN NEXT;
            RETURN;
        END IF;
        last_ended_at := task.ended_at;
        last_session := task.session;
        last_no := task.no;
    END LOOP;
    IF examined = p_most THEN
        next_ended_at := last_ended_at;
        next_session := last_session;
        next_no := last_no;
    END IF;
    RETURN NEXT;
END $$;

-- Removes at most `p_most` tasks of a session that was closed until a time, and then the session. Returns
-- the numbers of removed tasks and sessions, and whether there may be more.
CREATE OR REPLACE FUNCTION {schema}.prune_session(p_until bigint, p_most bigint)
RETURNS TABLE(removed_tasks bigint, removed_sessions bigint, has_more boolean) LANGUAGE plpgsql AS $$
DECLARE
    closed bigint;
    task bigint;
    removed_messages bigint := 0;
BEGIN
    removed_tasks := 0;
    removed_sessions := 0;
    SELECT s.key INTO closed FROM {schema}.sessions AS s
        WHERE s.closed_at <= p_until
        ORDER BY s.closed_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    has_more := FOUND;
    IF FOUND THEN
        FOR task IN SELECT t.no FROM {schema}.tasks AS t WHERE t.session = closed ORDER BY t.no DESC
            LIMIT p_most
        LOOP
            PERFORM {schema}.remove_task(closed, task);
            removed_tasks := removed_tasks + 1;
        END LOOP;
        IF removed_tasks < p_most THEN
            DELETE FROM {schema}.messages WHERE session = closed AND no IN (
                SELECT m.no FROM {schema}.messages AS m WHERE m.session = closed LIMIT p_most);
            GET DIAGNOSTICS removed_messages = ROW_COUNT;
        END IF;
        IF removed_tasks < p_most AND removed_messages < p_most THEN
            DELETE FROM {schema}.key_marks WHERE session = closed;
            DELETE FROM {schema}.calls WHERE id IN (
                SELECT c.id FROM {schema}.calls AS c WHERE c.session = closed AND c.reply IS NULL
                ORDER BY c.id FOR UPDATE);
            DELETE FROM {schema}.sessions WHERE key = closed;
            removed_sessions := 1;
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Removes at most `p_most` events at the beginning of a lane: those until a time and those of removed
-- sessions. Returns the number of removed events.
CREATE OR REPLACE FUNCTION {schema}.prune_lane(p_lane int, p_until bigint, p_most bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
    first_kept bigint;
    last_removed bigint;
BEGIN
    SELECT l.pruned_to + 1 INTO first FROM {schema}.lanes AS l WHERE l.lane = p_lane;
    SELECT min(e.pos) FILTER (WHERE e.kept), max(e.pos) INTO first_kept, last_removed FROM (
        SELECT ev.pos, ev.at > coalesce(p_until, -1)
            AND EXISTS (SELECT FROM {schema}.sessions AS s WHERE s.key = ev.session) AS kept
        FROM {schema}.events AS ev
        WHERE ev.lane = p_lane AND ev.pos >= first
        ORDER BY ev.pos LIMIT p_most
    ) AS e;
    last_removed := coalesce(first_kept - 1, last_removed);
    IF last_removed IS NULL OR last_removed < first THEN
        RETURN 0;
    END IF;
    UPDATE {schema}.lanes SET pruned_to = last_removed WHERE lane = p_lane AND pruned_to = first - 1;
    IF NOT FOUND THEN
        -- Another node prunes the lane.
        RETURN 0;
    END IF;
    DELETE FROM {schema}.event_spans AS span WHERE span.lane = p_lane
        AND span.last_pos <= last_removed AND span.session IN (
            SELECT DISTINCT ev.session FROM {schema}.events AS ev
            WHERE ev.lane = p_lane AND ev.pos <= last_removed);
    DELETE FROM {schema}.events AS ev WHERE ev.lane = p_lane AND ev.pos <= last_removed;
    RETURN last_removed - first + 1;
END $$;

-- Creates the partitions of the next days, from yesterday on. A day whose events are in the default
-- partition already gets none. Gives up soon if a reader is in the way; the next call tries again.
CREATE OR REPLACE FUNCTION {schema}.create_partitions(p_days bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    today constant bigint := floor(extract(epoch FROM clock_timestamp()) / 86400);
    parent text;
    child text;
    has_events boolean;
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    FOR day IN today - 1 .. today + p_days LOOP
        FOREACH parent IN ARRAY ARRAY['events', 'event_spans'] LOOP
            child := format('%s_%s', parent, day);
            CONTINUE WHEN to_regclass(format('{schema}.%I', child)) IS NOT NULL;
            -- Nodes that do the same at the same time wait for each other.
            LOCK TABLE {schema}.meta IN SHARE ROW EXCLUSIVE MODE;
            CONTINUE WHEN to_regclass(format('{schema}.%I', child)) IS NOT NULL;
            EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I WHERE at >= %s AND at < %s)',
                parent || '_default', day::bigint * 86400000, (day::bigint + 1) * 86400000)
                INTO has_events;
            CONTINUE WHEN has_events;
            BEGIN
                EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.%I INCLUDING ALL)', child, parent);
                EXECUTE format('ALTER TABLE {schema}.%I ATTACH PARTITION {schema}.%I '
                    'FOR VALUES FROM (%s) TO (%s)', parent, child, day::bigint * 86400000, (day::bigint + 1) * 86400000);
            EXCEPTION WHEN check_violation THEN
                NULL;
            END;
        END LOOP;
    END LOOP;
END $$;

-- Marks the events of the oldest day as removed, if all of them are of a time until `p_until`, and no
-- younger event precedes them in a lane. Returns the day and the number of events, or nothing. The days
-- that `create_partitions` creates stay.
CREATE OR REPLACE FUNCTION {schema}.remove_day(p_until bigint)
RETURNS TABLE(removed_day bigint, removed bigint) LANGUAGE plpgsql AS $$
DECLARE
    today constant bigint := floor(extract(epoch FROM clock_timestamp()) / 86400);
    day bigint;
    of_lane record;
    pruned_before bigint;
BEGIN
    SELECT min(substring(c.relname FROM '^events_([0-9]+)$')::bigint) INTO day
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.events'::regclass;
    IF day IS NULL OR day >= today - 1 OR (day + 1) * 86400000 - 1 > p_until THEN
        RETURN;
    END IF;
    removed_day := day;
    removed := 0;
    FOR of_lane IN EXECUTE format(
        'SELECT e.lane, max(e.pos) AS last FROM {schema}.%I AS e GROUP BY e.lane ORDER BY e.lane',
        format('events_%s', day))
    LOOP
        IF EXISTS (SELECT FROM {schema}.events AS e WHERE e.lane = of_lane.lane
            AND e.pos <= of_lane.last AND e.at > p_until)
        THEN
            RAISE EXCEPTION 'a younger event precedes those of day %', day USING ERRCODE = 'BG004';
        END IF;
        DELETE FROM {schema}.events AS e WHERE e.lane = of_lane.lane AND e.pos <= of_lane.last
            AND (e.at < day * 86400000 OR e.at >= (day + 1) * 86400000);
        IF FOUND THEN
            DELETE FROM {schema}.event_spans AS span WHERE span.lane = of_lane.lane
                AND span.last_pos <= of_lane.last
                AND (span.at < day * 86400000 OR span.at >= (day + 1) * 86400000);
        END IF;
        SELECT l.pruned_to INTO pruned_before FROM {schema}.lanes AS l WHERE l.lane = of_lane.lane
            FOR NO KEY UPDATE;
        IF pruned_before < of_lane.last THEN
            UPDATE {schema}.lanes SET pruned_to = of_lane.last WHERE lane = of_lane.lane;
            removed := removed + of_lane.last - pruned_before;
        END IF;
    END LOOP;
    RETURN NEXT;
END $$;

-- Drops the partition of a day whose events `remove_day` has marked. Returns false if it has other events,
-- or is gone already. Gives up soon if a commit or a reader is in the way.
CREATE OR REPLACE FUNCTION {schema}.drop_day(p_day bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    has_events boolean;
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    IF to_regclass(format('{schema}.%I', format('events_%s', p_day))) IS NULL THEN
        RETURN false;
    END IF;
    -- No commit can add an event of the day from here on.
    LOCK TABLE {schema}.events, {schema}.event_spans IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I AS e JOIN {schema}.lanes AS l USING (lane) '
        'WHERE e.pos > l.pruned_to)', format('events_%s', p_day)) INTO has_events;
    IF has_events THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE {schema}.%I', format('events_%s', p_day));
    EXECUTE format('DROP TABLE IF EXISTS {schema}.%I', format('event_spans_%s', p_day));
    RETURN true;
END $$;
