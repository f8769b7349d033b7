-- The additions of version 3. Programs of version 2 continue to work with them.

-- The time from which any node may claim a session that waits for one (`next_owner`).
ALTER TABLE {schema}.sessions ADD COLUMN next_owner_until timestamptz;
UPDATE {schema}.sessions SET next_owner_until = clock_timestamp() WHERE next_owner IS NOT NULL;
CREATE INDEX sessions_next_owner_until ON {schema}.sessions(next_owner_until)
    WHERE lane IS NULL AND next_owner IS NOT NULL;

-- Lanes are removed only when no open node joined before this time. Programs of version 2 would wait for
-- their events.
INSERT INTO {schema}.meta(name, value)
    VALUES ('version_3_at', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- Limits of providers that nodes share. `levels` has the requests and the tokens that can be used at once, of
-- the amounts that nobody holds.
CREATE TABLE {schema}.provider_gates(
    provider text PRIMARY KEY,
    closed_until timestamptz NOT NULL DEFAULT '-infinity',
    levels float8[] NOT NULL,
    refilled_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Amounts are the calls that run at once, the requests per minute and the tokens per minute.
CREATE TABLE {schema}.provider_shares(
    provider text NOT NULL,
    node bigint NOT NULL,
    last_report bigint NOT NULL,
    held bigint[] NOT NULL,
    demand bigint[] NOT NULL,
    PRIMARY KEY (provider, node)
);

-- The timeline of the server that the lane was opened on, or 0 if it is unknown.
ALTER TABLE {schema}.lanes ADD COLUMN timeline bigint NOT NULL DEFAULT 0;
