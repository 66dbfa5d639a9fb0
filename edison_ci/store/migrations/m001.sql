-- Runs, cells, answers and the money they cost. Times are ISO-8601 UTC, money is integer
-- micro-dollars, scores are 0-1. Big texts are kept apart from the numbers that tables show.

create table run (
  id            text primary key,
  experiment    text not null,
  trigger       text not null,
  status        text not null,
  verdict       text,
  plan_hash     text not null,
  snapshot      text not null,              -- JSON: what was planned, to explain a changed plan
  cells_planned integer not null,
  complete      integer not null default 0 check (complete in (0, 1)),
  simulated     integer not null default 0 check (simulated in (0, 1)),
  partial       integer not null default 0 check (partial in (0, 1)),
  stopped_by    text,
  owner         text,
  created_at    text not null,
  finished_at   text
) strict;
create index run_by_experiment on run (experiment, created_at);

create table cell (
  id         text primary key,              -- 12 hex
  run_id     text not null references run (id),
  side       text not null,
  prompt     text not null,
  version    text not null,                 -- hash of the prompt
  model      text not null,
  case_id    text not null,
  draw       integer not null,
  address    text not null,
  take       integer,                       -- with the address: the answer; null without one
  status     text not null,
  composite  real,
  passed     integer,
  error      text,
  reason     text,
  unique (run_id, side, prompt, model, case_id, draw)
) strict;
create index cell_by_case on cell (case_id);
create index cell_by_run on cell (run_id, model, status);

create table part (                         -- what a cell's composite is made of
  cell_id text not null references cell (id),
  name    text not null,
  kind    text not null,                    -- check, criterion, grader
  score   real,
  passed  integer,
  weight  real not null,
  status  text not null,
  reason  text not null default '',
  primary key (cell_id, name)
) strict, without rowid;

create table attempt (                      -- one try at a call, booked before it is sent
  id            integer primary key,
  address       text not null,
  run_id        text not null,
  model         text not null,
  phase         text not null,
  state         text not null check (state in ('reserved', 'settled', 'released', 'unknown')),
  est_microusd  integer not null,
  cost_microusd integer,
  est_tokens    integer not null,
  owner         text not null,
  sent_at       text not null,
  done_at       text,
  http_status   integer,
  error         text
) strict;
create index attempt_open on attempt (address) where state = 'reserved';
create index attempt_by_run on attempt (run_id, state);

create table answer (                       -- append-only: nothing paid for is overwritten
  address       text not null,
  take          integer not null,
  attempt       integer not null references attempt (id),
  finish_reason text not null,
  tokens_in     integer,
  tokens_out    integer,
  cached_in     integer not null default 0,
  latency_ms    integer not null,
  cost_microusd integer not null,
  cost_kind     text not null,              -- billed, estimated
  served_model  text not null,
  created_at    text not null,
  primary key (address, take)
) strict, without rowid;

create table answer_text (
  address    text not null,
  take       integer not null,
  text       text not null,
  tool_calls text,
  sha256     text not null,
  primary key (address, take)
) strict, without rowid;

create trigger answer_is_kept before update on answer
begin select raise(abort, 'answers are append-only'); end;

create table booked (                       -- running totals of every budget, by scope and day
  scope    text not null,                   -- run:ID, experiment:NAME, project
  day      text not null,                   -- UTC date; '' for a run
  microusd integer not null default 0,
  tokens   integer not null default 0,
  primary key (scope, day)
) strict, without rowid;

create table event (
  seq    integer primary key autoincrement,
  time   text not null,
  run_id text not null,
  type   text not null,
  data   text not null
) strict;
create index event_by_run on event (run_id, seq);
