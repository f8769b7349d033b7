-- The additions of version 3: providers' limits that nodes share. Programs of version 2 continue to work with
-- them.

-- `levels` has the requests and the tokens that can be used at once, of the amounts that nobody holds.
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
