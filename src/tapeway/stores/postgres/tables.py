"""The tables of a PostgreSQL store.

    cassette ─┬─ interaction ─┬─ key       digests of identifiers, per generation of the rules
              ├─ source       └─ usage ── body ── piece
              └─ log                       what an index in memory follows

A cassette without a name is being written or removed. `number` is an interaction's index, `place`
its position in the order. What a recording holds is stored as bytes: text of PostgreSQL holds neither
NUL nor invalid UTF-8. Tables that may name a future cassette refer to the cassette by name.
"""

RECORDINGS = """
CREATE TABLE @cassette (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" UNIQUE,
  -- Drawn when it is made, and when its rules change: no other cassette of any database ever has it.
  token text NOT NULL,
  -- The last one in the log. Who raises it holds the row until the commit: so revisions are dense, and
  -- become visible in order.
  revision bigint NOT NULL DEFAULT 0,
  created_at bytea NOT NULL, run_id bytea NOT NULL, meta bytea NOT NULL,
  generation bigint NOT NULL DEFAULT 0,
  coming_meta bytea, coming_generation bigint,
  modified_at double precision NOT NULL
);
CREATE TABLE @interaction (
  cassette bigint NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  number bigint NOT NULL, place bigint NOT NULL, take bigint NOT NULL,
  exchange boolean NOT NULL,
  route bytea NOT NULL, base bytea NOT NULL,
  method bytea NOT NULL, path bytea NOT NULL, query bytea NOT NULL,
  method_path bytea NOT NULL,
  weight bigint, size bigint NOT NULL,
  forward bytea, backward bytea,
  document bytea NOT NULL, sha256 bytea NOT NULL,
  PRIMARY KEY (cassette, number)
);
CREATE INDEX interaction_place ON @interaction (cassette, place, number);
CREATE INDEX interaction_path ON @interaction (cassette, method_path, number) WHERE weight IS NOT NULL;
CREATE INDEX interaction_forward ON @interaction (cassette, forward, number DESC);
CREATE INDEX interaction_backward ON @interaction (cassette, backward, number DESC);
CREATE TABLE @key (
  cassette bigint NOT NULL, generation bigint NOT NULL, digest bytea NOT NULL, number bigint NOT NULL,
  PRIMARY KEY (cassette, generation, digest, number),
  FOREIGN KEY (cassette, number) REFERENCES @interaction ON DELETE CASCADE
);
CREATE INDEX key_interaction ON @key (cassette, number);
-- How many recordings a cassette has and where they came from. Several rows (shards) per source where
-- transactions run at the same time, so that they seldom wait for each other.
CREATE TABLE @source (
  cassette bigint NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  shard bigint NOT NULL, exchange boolean NOT NULL, route bytea NOT NULL, base bytea NOT NULL,
  count bigint NOT NULL, size bigint NOT NULL,
  -- Above all indexes that were ever counted here.
  next bigint NOT NULL,
  modified_at double precision NOT NULL,
  PRIMARY KEY (cassette, shard, exchange, route, base)
) WITH (fillfactor = 50);
"""

LOG = """
-- A row for each change of a recording, with what an index needs of it. A row that is not live says that
-- the recording with this number was removed, now or by a later row.
CREATE TABLE @log (
  cassette bigint NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  revision bigint NOT NULL,
  number bigint NOT NULL, place bigint NOT NULL, take bigint NOT NULL,
  -- Its match key by the rules in force and by the coming ones; none where it is whole in memory.
  key bytea, coming_key bytea, marks integer NOT NULL,
  live boolean NOT NULL,
  PRIMARY KEY (cassette, revision)
) WITH (fillfactor = 90);
CREATE INDEX log_number ON @log (cassette, number);
"""

BODIES = """
CREATE TABLE @body (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, digest bytea UNIQUE, size bigint NOT NULL, idle_since double precision
);
CREATE INDEX body_idle ON @body (idle_since) WHERE idle_since IS NOT NULL;
CREATE TABLE @piece (
  body bigint NOT NULL REFERENCES @body, number bigint NOT NULL, data bytea NOT NULL,
  PRIMARY KEY (body, number)
);
CREATE TABLE @usage (
  cassette bigint NOT NULL, number bigint NOT NULL, body bigint NOT NULL REFERENCES @body,
  PRIMARY KEY (cassette, number, body),
  FOREIGN KEY (cassette, number) REFERENCES @interaction ON DELETE CASCADE
);
CREATE INDEX usage_body ON @usage (body);
"""

CURSORS = """
CREATE TABLE @turn (
  name text COLLATE "C" NOT NULL, take bigint NOT NULL, key bytea NOT NULL,
  state bytea NOT NULL, version bigint NOT NULL,
  PRIMARY KEY (name, take, key)
) WITH (fillfactor = 70);
-- The last take that used a recording.
CREATE TABLE @touched (
  name text COLLATE "C" NOT NULL, take bigint NOT NULL, number bigint NOT NULL, PRIMARY KEY (name, number)
);
CREATE INDEX touched_take ON @touched (name, take);
CREATE TABLE @numbering (name text COLLATE "C" PRIMARY KEY, next bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE @lease (
  name text COLLATE "C" NOT NULL, key bytea NOT NULL, fence bigint NOT NULL,
  instance text NOT NULL, since double precision NOT NULL,
  PRIMARY KEY (name, key)
) WITH (fillfactor = 50);
CREATE TABLE @instance (
  id text PRIMARY KEY, name text NOT NULL,
  seen double precision NOT NULL, joined boolean NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE @control (generation bigint NOT NULL, document bytea);
INSERT INTO @control (generation) VALUES (0);
"""
"""Those that need not survive a crash: cursors, leases and what is in force."""
