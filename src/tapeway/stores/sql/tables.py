"""The tables of a SQL store.

    cassette ─┬─ interaction ─┬─ key       digests to find it by, per generation of the rules
              └─ source       └─ usage ── body ── piece

A cassette without a name is being written or removed. `number` is an interaction's index, `place`
its position in the order. What a recording holds is stored as bytes: text of PostgreSQL holds neither
NUL nor invalid UTF-8. Tables that may name a future cassette refer to the cassette by name.
"""

RECORDINGS = """
CREATE TABLE @cassette (
  id :id,
  name :name UNIQUE,
  -- Drawn when it is made: no other cassette of any database ever has it.
  token :text NOT NULL,
  revision :int NOT NULL DEFAULT 0,
  created_at :bytes NOT NULL, run_id :bytes NOT NULL, meta :bytes NOT NULL,
  generation :int NOT NULL DEFAULT 0,
  coming_meta :bytes, coming_generation :int,
  modified_at :float NOT NULL
) :table;
CREATE TABLE @interaction (
  cassette :int NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  number :int NOT NULL, place :int NOT NULL, take :int NOT NULL,
  exchange :bool NOT NULL,
  route :bytes NOT NULL, base :bytes NOT NULL,
  method :bytes NOT NULL, path :bytes NOT NULL, query :bytes NOT NULL,
  method_path :bytes NOT NULL,
  weight :int, size :int NOT NULL,
  forward :bytes, backward :bytes,
  document :bytes NOT NULL, sha256 :bytes NOT NULL,
  PRIMARY KEY (cassette, number)
) :table;
CREATE INDEX interaction_place ON @interaction (cassette, place, number);
CREATE INDEX interaction_path ON @interaction (cassette, method_path, number) WHERE weight IS NOT NULL;
CREATE INDEX interaction_forward ON @interaction (cassette, forward, number DESC);
CREATE INDEX interaction_backward ON @interaction (cassette, backward, number DESC);
CREATE TABLE @key (
  cassette :int NOT NULL, generation :int NOT NULL, digest :bytes NOT NULL, number :int NOT NULL,
  PRIMARY KEY (cassette, generation, digest, number),
  FOREIGN KEY (cassette, number) REFERENCES @interaction ON DELETE CASCADE
) :keyed;
CREATE INDEX key_interaction ON @key (cassette, number);
-- How many recordings a cassette has and where they came from. Several rows (shards) per source where
-- transactions run at the same time, so that they seldom wait for each other.
CREATE TABLE @source (
  cassette :int NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  shard :int NOT NULL, exchange :bool NOT NULL, route :bytes NOT NULL, base :bytes NOT NULL,
  count :int NOT NULL, size :int NOT NULL,
  changes :int NOT NULL,
  -- Above all indexes that were ever counted here.
  next :int NOT NULL,
  modified_at :float NOT NULL,
  PRIMARY KEY (cassette, shard, exchange, route, base)
) :busy;
CREATE TABLE @body (
  id :id, digest :bytes UNIQUE, size :int NOT NULL, idle_since :float
) :table;
CREATE INDEX body_idle ON @body (idle_since) WHERE idle_since IS NOT NULL;
CREATE TABLE @piece (
  body :int NOT NULL REFERENCES @body, number :int NOT NULL, data :bytes NOT NULL,
  PRIMARY KEY (body, number)
) :table;
CREATE TABLE @usage (
  cassette :int NOT NULL, number :int NOT NULL, body :int NOT NULL REFERENCES @body,
  PRIMARY KEY (cassette, number, body),
  FOREIGN KEY (cassette, number) REFERENCES @interaction ON DELETE CASCADE
) :keyed;
CREATE INDEX usage_body ON @usage (body);
"""

CURSORS = """
CREATE TABLE @turn (
  name :name NOT NULL, take :int NOT NULL, key :bytes NOT NULL,
  state :bytes NOT NULL, version :int NOT NULL,
  PRIMARY KEY (name, take, key)
) :moving;
-- The last take that used a recording.
CREATE TABLE @touched (
  name :name NOT NULL, take :int NOT NULL, number :int NOT NULL, PRIMARY KEY (name, number)
) :keyed;
CREATE INDEX touched_take ON @touched (name, take);
CREATE TABLE @numbering (name :name PRIMARY KEY, next :int NOT NULL) :busy;
CREATE TABLE @lease (
  name :name NOT NULL, key :bytes NOT NULL, fence :int NOT NULL,
  instance :text NOT NULL, since :float NOT NULL,
  PRIMARY KEY (name, key)
) :busy;
CREATE TABLE @instance (
  id :text PRIMARY KEY, name :text NOT NULL,
  -- What tells others of the machine whether it has ended.
  process :text NOT NULL,
  seen :float NOT NULL, joined :bool NOT NULL,
  -- The number of the last change of what is in force that it applied.
  generation :int NOT NULL
) :busy;
CREATE TABLE @control (generation :int NOT NULL, document :bytes) :table;
INSERT INTO @control (generation) VALUES (0);
"""
"""Those that need not survive a crash: cursors, leases and what is in force."""
