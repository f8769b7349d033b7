-- The functions of providers' limits. They are replaced at each migration. `{schema}` is replaced by the quoted
-- name of the schema.

-- Stores the report of an open node about a provider, and grants what nobody holds. Returns no row if the
-- report does not count. The row of the gate orders the exchanges of all nodes.
CREATE OR REPLACE FUNCTION {schema}.exchange_limits(
    p_provider text, p_node bigint, p_report bigint, p_limits bigint[], p_held bigint[], p_wanted bigint[],
    p_demand bigint[], p_returned float8[], p_closed_ms bigint
) RETURNS TABLE(held bigint[], free bigint[], added float8[], closed_ms bigint, now_ms bigint,
    open_nodes bigint, demand_nodes bigint[], demands bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    gate {schema}.provider_gates;
    before bigint[];
    known bigint;
    others bigint[];
    checked_at timestamptz;
    unheld bigint;
    more bigint;
    level float8;
BEGIN
    -- A report that a crash of the server loses is repeated by the next one.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM {schema}.nodes AS n WHERE n.node = p_node AND n.open;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    LOOP
        SELECT g.* INTO gate FROM {schema}.provider_gates AS g WHERE g.provider = p_provider
            FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.provider_gates(provider, levels) VALUES (p_provider, p_limits[2:3])
            ON CONFLICT (provider) DO NOTHING;
    END LOOP;
    DELETE FROM {schema}.provider_shares AS s WHERE s.provider = p_provider
        AND NOT EXISTS (SELECT FROM {schema}.nodes AS n WHERE n.node = s.node AND n.open);
    SELECT s.held, s.last_report INTO before, known FROM {schema}.provider_shares AS s
        WHERE s.provider = p_provider AND s.node = p_node;
    IF known >= p_report THEN
        RETURN;
    END IF;
    before := coalesce(before, '{0, 0, 0}');
    SELECT ARRAY[coalesce(sum(s.held[1]), 0), coalesce(sum(s.held[2]), 0), coalesce(sum(s.held[3]), 0)]::bigint[]
        INTO others FROM {schema}.provider_shares AS s WHERE s.provider = p_provider AND s.node <> p_node;

    checked_at := clock_timestamp();
    held := p_held;
    added := '{0, 0}';
    free := '{0, 0, 0}';
    FOR i IN 1..3 LOOP
        free[i] := greatest(p_limits[i] - others[i] - p_held[i], 0);
        more := least(greatest(p_wanted[i] - p_held[i], 0), free[i]);
        IF i > 1 THEN
            unheld := greatest(p_limits[i] - others[i] - before[i], 0);
            level := gate.levels[i - 1]
                + extract(epoch FROM greatest(checked_at - gate.refilled_at, '0')) * unheld / 60;
            level := least(least(level, unheld) + p_returned[i - 1], free[i]);
            IF more > 0 THEN
                added[i - 1] := level * more / free[i];
            END IF;
            gate.levels[i - 1] := level - added[i - 1];
        END IF;
        held[i] := p_held[i] + more;
        free[i] := free[i] - more;
    END LOOP;

    gate.closed_until := greatest(gate.closed_until, checked_at + p_closed_ms * interval '1 ms');
    UPDATE {schema}.provider_gates AS g
        SET levels = gate.levels, refilled_at = checked_at, closed_until = gate.closed_until
        WHERE g.provider = p_provider;
    INSERT INTO {schema}.provider_shares AS s (provider, node, last_report, held, demand)
        VALUES (p_provider, p_node, p_report, exchange_limits.held, p_demand)
        ON CONFLICT (provider, node) DO UPDATE
            SET last_report = excluded.last_report, held = excluded.held, demand = excluded.demand;
    closed_ms := CASE WHEN gate.closed_until > checked_at
        THEN ceil(extract(epoch FROM gate.closed_until - checked_at) * 1000) ELSE 0 END;
    now_ms := {schema}.to_millis(checked_at);
    SELECT count(*) INTO open_nodes FROM {schema}.nodes AS n WHERE n.open;
    SELECT array_agg(s.node ORDER BY s.node) INTO demand_nodes
        FROM {schema}.provider_shares AS s WHERE s.provider = p_provider;
    SELECT array_agg(d.amount ORDER BY s.node, d.number) INTO demands
        FROM {schema}.provider_shares AS s, unnest(s.demand) WITH ORDINALITY AS d(amount, number)
        WHERE s.provider = p_provider;
    RETURN NEXT;
END $$;
