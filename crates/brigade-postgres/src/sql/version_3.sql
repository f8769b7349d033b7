-- The additions of version 3. Programs of version 2 continue to work with them.

-- The time from which any node may claim a session that waits for one (`next_owner`).
ALTER TABLE {schema}.sessions ADD COLUMN next_owner_until timestamptz;
