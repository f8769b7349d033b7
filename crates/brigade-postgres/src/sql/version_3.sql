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
