-- Runs, cells, answers and the money they cost. Times are ISO-8601 UTC, money is integer
-- micro-dollars, scores are 0-1. Big texts are kept apart from the numbers that tables show.

create table run (                          -- one evaluation of one experiment
  id            text primary key,
  experiment    text not null,
  trigger       text not null,              -- who started it: cli, schedule, import, ...
  status        text not null               -- PENDING, EXECUTING, JUDGING, ..., COMPLETED, FAILED
    check (status in ('PENDING', 'EXECUTING', 'JUDGING', 'AGGREGATING', 'REFINING', 'REVIEWING',
                      'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED')),
  verdict       text                        -- pass, fail, inconclusive, error, skipped; null before
    check (verdict in ('pass', 'fail', 'inconclusive', 'skipped', 'error')),
  plan_hash     text not null,              -- of everything the result depends on
  snapshot      text not null,              -- JSON: what was planned, to explain a changed plan
  labels        text not null default '{}', -- JSON: prompt id to its label, such as v3
  cells_planned integer not null,
  reused        integer not null default 0, -- answers that were in store already
  complete      integer not null default 0 check (complete in (0, 1)),
  simulated     integer not null default 0 check (simulated in (0, 1)), -- any of its models
  models        text not null default '{}', -- JSON: of answers and of judges, and which are simulated
  partial       integer not null default 0 check (partial in (0, 1)),
  stopped_by    text,                       -- budget, signal or person, if it was stopped
  base_ref      text,                       -- what it is compared with
  base_commit   text,
  commit_id     text,                       -- HEAD, if no file of the experiment differed from it
  shard         text,                       -- I/N, if it is one of N shards: its gates do not decide
  loop          text,                       -- the loop that it was for; null for none
  owner         text,                       -- the process that runs it
  wanted        text,                       -- pause or cancel, requested by another process
  created_at    text not null,
  finished_at   text
) strict;
create index run_by_experiment on run (experiment, created_at);

create table steering (                     -- requests to change a run while it goes on
  id       integer primary key,
  run_id   text not null references run (id),
  what     text not null,                   -- JSON: concurrency, pause, resume, requeue or budget
  by       text not null,                   -- who asked
  asked_at text not null,
  taken_at text,                            -- when it was answered; null while it waits
  done     integer check (done in (0, 1)),  -- 0: refused; null while it waits
  said     text not null default ''         -- what changed, or why it was refused, in words
) strict;
create index steering_by_run on steering (run_id);
create index steering_open on steering (run_id) where taken_at is null;

create table run_origin (                   -- runs that were made elsewhere, and who brought them here
  run_id     text primary key references run (id),
  ran_by     text not null,                 -- who ran it, as its bundle says; empty if it does not
  ran_on     text not null,                 -- the machine, as its bundle says
  ran_as     text not null,                 -- trigger of the run there
  way        text not null check (way in ('import', 'push', 'pull', 'restore')),
  source     text not null,                 -- file or address that it came from
  brought_by text not null,                 -- who imported, pushed or pulled it
  brought_at text not null,
  signed_by  text,                          -- public key of its valid signature; null without one
  trusted    integer not null               -- 1: trust.yaml has that key, as of the last run here
    check (trusted in (0, 1))
) strict, without rowid;

create table start_request (                -- runs that pages and programs asked for, each once
  key        text primary key,              -- chosen by the sender: a repeated request has the same
  run_id     text not null,                 -- of the run; it may not have begun yet
  experiment text not null,
  plan_hash  text not null,                 -- of the plan that was shown
  by         text not null,                 -- who asked
  asked_at   text not null,
  workflow_url text,                        -- page of the workflow that GitHub was asked to start; null: it runs here
  accepted_at  text                         -- when GitHub confirmed that; null while it is not known
) strict, without rowid;

create table cell (                         -- one case, with one prompt and model
  id           text primary key,            -- 24 hex; hash of run, side, prompt, model, case, repeat
  run_id       text not null references run (id),
  side         text not null                -- head, or base with --against
    check (side in ('head', 'base')),
  prompt       text not null,
  version      text not null,               -- hash of the prompt
  model        text not null,               -- model and its own parameters
  case_id      text not null,
  repeat       integer not null,            -- 0, 1, ... of the same call
  request_hash text not null,               -- names the call
  answer_no    integer,                     -- with the request hash: the answer; null without one
  status       text not null                -- ok, malformed, error, blocked, skipped
    -- not `in`: of three or more values SQLite makes a table, again for each row that is written
    check (status = 'ok' or status = 'malformed' or status = 'error' or status = 'blocked'
           or status = 'skipped'),
  composite    real,                        -- weighted mean of its components; null if one broke
  passed       integer,                     -- 1, 0 or null
  error        text,                        -- class of the error
  reason       text,                        -- in words
  cluster      text,                        -- cases of one cluster are not independent
  case_hash    text                         -- of input and expected output: is it the same case?
) strict;
create index cell_by_case on cell (case_id);
create index cell_by_run on cell (run_id, case_id, model, status);

create table fallback_answer (              -- answers in place of a model that was not reached
  cell_id      text primary key references cell (id), -- stays in error: nothing counts this answer
  model        text not null,               -- the fallback model that answered
  simulated    integer not null check (simulated in (0, 1)), -- whether that model is
  request_hash text not null,               -- with answer_no: what it answered
  answer_no    integer not null,
  status       text not null                -- of its grade: ok, malformed, error, blocked
    check (status in ('ok', 'malformed', 'error', 'blocked')),
  composite    real,                        -- as of a cell
  passed       integer,
  reason       text not null default ''     -- why it has no grade, in words; may quote the answer
) strict, without rowid;

create table run_case (                     -- what kind of case each case of a run was
  run_id     text not null references run (id),
  case_id    text not null,
  tags       text not null,                 -- JSON: a list
  difficulty integer,                       -- 1 to 5; null if not given
  kind       text not null,                 -- golden, synthetic, adversarial
  words      integer not null,              -- of all inputs together
  primary key (run_id, case_id)
) strict, without rowid;

create table component (                    -- what a cell's composite is made of
  cell_id text not null references cell (id),
  name    text not null,
  kind    text not null,                    -- check, rubric, criterion, grader
  score   real,                             -- null if it was skipped or broke
  passed  integer,
  weight  real not null,
  status  text not null                     -- ok, skipped, error
    check (status = 'ok' or status = 'skipped' or status = 'error'),
  reason  text not null default '',         -- in words; may quote the answer
  primary key (cell_id, kind, name)
) strict, without rowid;

create table judgment (                     -- which answers of judges and graders a cell rests on
  cell_id      text not null references cell (id),
  model        text not null,
  request_hash text not null,
  answer_no    integer not null,
  primary key (cell_id, model, request_hash, answer_no)
) strict, without rowid;

create table question_score (               -- scores of cases as questions, by judges
  experiment   text not null,
  case_id      text not null,
  judge        text not null,
  criterion    text not null,               -- clarity, difficulty, ..., or one of your own
  case_hash    text not null,               -- of input and expected output: is it the same case?
  hash         text not null,               -- of instructions, criteria, objective and judge
  score        real,                        -- on its scale; null if there is none to be used
  low          real not null,               -- the worst and the best score of the scale
  high         real not null,
  reason       text not null default '',    -- in words, or why there is no score; may quote
  status       text not null check (status in ('ok', 'error')),
  simulated    integer not null check (simulated in (0, 1)),
  request_hash text not null,               -- with answer_no: what the judge answered
  answer_no    integer,
  judged_at    text not null,
  primary key (experiment, case_id, judge, criterion)
) strict, without rowid;

create table judge_score (                  -- scores of each judge of the rubric
  cell_id   text not null references cell (id),
  judge     text not null,
  criterion text not null,
  raw       real,                           -- on the criterion's scale; null if it cannot be used
  score     real,                           -- the same from 0 (worst) to 1 (best)
  missing   text,                           -- judge_error, out_of_range, ...; null with a score
  reason    text not null default '',       -- in words; may quote the answer
  primary key (cell_id, judge, criterion)
) strict, without rowid;

create table comparison (                   -- two answers to a case, judged in both orders
  a_cell     text not null references cell (id), -- head, or the model that is listed later
  b_cell     text not null references cell (id), -- base, or the model that is listed first
  run_id     text not null references run (id),
  judge      text not null,                 -- model that compared them
  judge_hash text not null,                 -- of instructions, rubric, model and parameters
  status     text not null check (status in ('ok', 'error')), -- error: an order has no winner
  -- winner, a shown first
  ab_winner  text check (ab_winner = 'a' or ab_winner = 'b' or ab_winner = 'tie'),
  -- winner, b shown first
  ba_winner  text check (ba_winner = 'a' or ba_winner = 'b' or ba_winner = 'tie'),
  ab_reason  text not null default '',      -- in words; may quote the answers
  ba_reason  text not null default '',
  chars_a    integer not null,              -- length of the answer
  chars_b    integer not null,
  asked      integer not null check (asked in (0, 1)), -- 0: equal or malformed, not judged
  own        text check (own in ('a', 'b', 'both')), -- a, b or both: by the judge's own model
  primary key (a_cell, b_cell)
) strict, without rowid;
create index comparison_by_b on comparison (b_cell);

create table attempt (                      -- one try at a call, booked before it is sent
  id            integer primary key,
  request_hash  text not null,              -- names the call
  run_id        text not null,              -- or what else it was for, such as try-...
  experiment    text,                       -- null: that of the run
  loop          text,                       -- the loop that it was for; null for none
  model         text not null,
  phase         text not null,              -- generate, judge, ...
  -- reserved: on its way; released: not charged; unknown: perhaps charged, counted as estimated
  state         text not null
    check (state = 'reserved' or state = 'settled' or state = 'released' or state = 'unknown'),
  est_microusd  integer not null,           -- the most it can cost
  cost_microusd integer,                    -- what it did cost; null while open
  est_tokens    integer not null,           -- the most it can use
  owner         text not null,              -- the process that made it
  sent_at       text not null,
  done_at       text,
  http_status   integer,
  error         text,
  origin        text references run_origin (run_id) -- run that it came with; null: made here
) strict;
create index attempt_open on attempt (request_hash) where state = 'reserved';
create index attempt_by_run on attempt (run_id);
create index attempt_by_loop on attempt (loop) where loop is not null;

create table batch (                        -- requests that a provider answers together, for less
  id             text primary key,          -- sent with it, so that it is found again
  run_id         text not null references run (id),
  model          text not null,             -- as in models.yaml
  scopes         text not null,             -- JSON: the budgets that its requests are booked in
  -- sending: perhaps at the provider; lost: not there, or refused
  state          text not null check (state in ('sending', 'submitted', 'collected', 'lost')),
  remote_id      text,                      -- as the provider names it; null while sending
  requests       integer not null,
  usual_microusd integer not null,          -- the most that these requests cost without a batch
  status         text not null default '',  -- what the provider reported last
  created_at     text not null,
  checked_at     text
) strict;
create index batch_open on batch (run_id) where state in ('sending', 'submitted');

create table batch_request (                -- one request of a batch
  batch_id text not null references batch (id),
  number   integer not null,                -- its name at the provider is ID-NUMBER
  attempt  integer not null references attempt (id),
  formed   integer not null check (formed in (0, 1)), -- whether a tool gives the answer its form
  left_out text not null default '',        -- parameters that the model does not accept
  primary key (batch_id, number)
) strict, without rowid;

create table schedule_fire (                -- a time at which a schedule was due, and what came of it
  experiment  text not null,
  schedule    text not null,                -- its name in the experiment's file
  due_at      text not null,                -- by its cron; with --now, when it was asked for
  last_due_at text not null,                -- the same; later if one row stands for several missed
  fires       integer not null default 1,   -- how many times the row stands for
  -- waiting: to be started; started: at work; paused: its run goes on at resume_at;
  -- missed: too late to start; skipped: it did not fit a budget
  state       text not null check (state in
    ('waiting', 'started', 'paused', 'done', 'failed', 'missed', 'skipped')),
  owner       text not null,                -- the scheduler that has it
  run_id      text,                         -- written with the run that it starts; null before
  budget_usd  real,                         -- of its run; null for that of the experiment
  attempts    integer not null default 0,   -- processes that were started for it
  resume_at   text,                         -- null unless it is paused
  exit_code   integer,                      -- of its last process; null if that is not known
  reason      text not null default '',     -- why it was missed, skipped, failed or paused
  claimed_at  text not null,
  ended_at    text,                         -- null while it is not over
  primary key (experiment, schedule, due_at)
) strict, without rowid;
create index schedule_fire_open on schedule_fire (due_at) where ended_at is null;

create table schedule_watch (               -- up to when the times of a schedule are accounted for
  experiment    text not null,
  schedule      text not null,
  cron          text not null,              -- a changed one is watched from then on
  watched_until text not null,
  primary key (experiment, schedule)
) strict, without rowid;

create table scheduler (                    -- processes of `edison schedule run`
  owner      text primary key,
  host       text not null,
  started_at text not null,
  seen_at    text not null,                 -- its last sign of life
  stopped_at text                           -- null while it runs, and if it was killed
) strict, without rowid;

create table answer (                       -- append-only: nothing paid for is overwritten
  request_hash  text not null,              -- sha256 of all that decides the answer
  answer_no     integer not null,           -- 0 and up, when the call was made again
  attempt       integer not null references attempt (id), -- the one that was paid
  finish_reason text not null,
  tokens_in     integer,                    -- null if the provider did not say
  tokens_out    integer,
  cached_in     integer not null default 0, -- of these, cached by the provider
  latency_ms    integer not null,
  cost_microusd integer not null,
  cost_kind     text not null,              -- billed, estimated, replayed, imported
  served_model  text not null,              -- as the provider names it
  left_out      text not null default '',   -- parameters that the model does not accept
  created_at    text not null,
  primary key (request_hash, answer_no)
) strict, without rowid;

create table answer_text (                  -- text of an answer; removed by retention
  request_hash text not null,
  answer_no    integer not null,
  text         text not null,
  tool_calls   text,                        -- JSON
  sha256       text not null,               -- of text, tool calls and details
  details      text,                        -- JSON: context and steps that an application told
  primary key (request_hash, answer_no)
) strict;

create trigger answer_is_kept before update on answer
begin select raise(abort, 'answers are append-only'); end;

create table booked (                       -- running totals of every budget, by scope and day
  scope    text not null,                   -- run:ID, experiment:NAME, project
  day      text not null,                   -- UTC date on which the call was sent
  microusd integer not null default 0,      -- settled, and estimates of what is open
  tokens   integer not null default 0,
  primary key (scope, day)
) strict, without rowid;

create table event (                        -- what happened in a run, for watchers
  seq    integer primary key autoincrement,
  time   text not null,
  run_id text not null,
  type   text not null,                     -- status:changed, run:progress, ...
  data   text not null                      -- JSON
) strict;
create index event_by_run on event (run_id, seq);

create table duty (                         -- recurring work of serve and schedule run
  name       text primary key,              -- such as retention or backup
  every_s    integer not null,              -- its period
  due_at     text not null,                 -- next time; while it is at work, when to try again
  started_at text not null,                 -- last time
  ended_at   text,                          -- of that time; null: at work, or its process died
  -- done, waiting: for a run to end, or failed; null like ended_at
  outcome    text check (outcome in ('done', 'waiting', 'failed')),
  detail     text not null default '',      -- what came of it, in words
  failures   integer not null default 0,    -- in a row
  done_at    text                           -- last time that it was done; null: never
) strict, without rowid;

create trigger answer_stays before delete on answer
begin select raise(abort, 'answers are append-only'); end;
create unique index answer_by_attempt on answer (attempt);

create table audit (                        -- who did what, or was refused; append-only, each row sealed
  seq      integer primary key autoincrement,
  time     text not null,
  actor    text not null,                   -- login, e-mail address or name
  known_by text not null,                   -- source of the name: web, token, proxy, github, git, settings, nobody
  action   text not null,                   -- such as gc or cache clear; "refused: ..." if refused
  entity   text not null,                   -- what it was done to
  before   text,                            -- JSON; null, like after and nonce, once it was forgotten
  after    text,                            -- JSON
  nonce    text,                            -- random: nobody guesses from the hash what was forgotten
  run_id   text,
  host     text not null,
  detail   text not null,                   -- hash of nonce, before and after
  sha256   text not null                    -- over the hash of the row before and this row
) strict;
create trigger audit_is_kept before update on audit
when not (new.nonce is null and new.before is null and new.after is null
  and (new.seq, new.time, new.actor, new.known_by, new.action, new.entity, new.host, new.detail,
       new.sha256) = (old.seq, old.time, old.actor, old.known_by, old.action, old.entity, old.host,
       old.detail, old.sha256) and new.run_id is old.run_id)
begin select raise(abort, 'the audit is append-only'); end;
create trigger audit_stays before delete on audit
begin select raise(abort, 'the audit is append-only'); end;

create table alert (                        -- a condition that was found; at most one open of each
  id              integer primary key autoincrement,
  condition       text not null,            -- drop, error_rate, disk, ...
  experiment      text not null,            -- empty for a condition of the machine
  level           text not null check (level in ('warn', 'alert')), -- highest while it was open
  sentence        text not null,            -- what was found last, in words
  detail          text not null default '{}', -- JSON: the figures behind the sentence
  run_id          text,                     -- run that it was found in last; null for none
  opened_at       text not null,
  seen_at         text not null,            -- when a check found it last
  closed_at       text,                     -- null while it is open
  closed_why      text not null default '', -- in words
  acknowledged_by text,                     -- who takes care of it; null for nobody yet
  acknowledged_at text,
  note            text not null default '', -- by whoever acknowledged it
  told_level      text not null default '', -- level at which people were told last; empty: not yet
  told_at         text,                     -- when they were told last, of its end too
  told_end        integer not null default 0 check (told_end in (0, 1)) -- 1: told that it is over
) strict;
create unique index alert_open on alert (condition, experiment) where closed_at is null;
create index alert_by_experiment on alert (experiment, opened_at);
create index alert_told on alert (told_at) where told_at is not null;

create table alert_mute (                   -- conditions that people are not told of for a time
  id         integer primary key autoincrement,
  experiment text not null,                 -- empty for a condition of the machine
  condition  text not null,                 -- empty: every condition of the experiment
  until      text not null,                 -- moved back to now if it is ended early
  reason     text not null default '',
  actor      text not null,                 -- who muted it
  made_at    text not null
) strict;
create index alert_mute_until on alert_mute (until);

create table decision (                     -- decision of a gate; never rewritten
  run_id     text not null references run (id),
  round      integer not null,              -- 0, 1, ... per interim analysis or decision
  position   integer not null,              -- order in the report
  metric     text not null,
  prompt     text,                          -- null, like model, for a decision on everything
  model      text,
  verdict    text not null                  -- pass, fail, inconclusive, skipped
    check (verdict in ('pass', 'fail', 'inconclusive', 'skipped')),
  sentence   text not null,                 -- the verdict in words
  estimate   real,                          -- change or level, by the kind in detail
  low        real,                          -- interval, two-sided
  high       real,
  n          integer not null,              -- cases it rests on; answers for shares and latency
  n_more     integer,                       -- further cases that would decide it
  p          real,                          -- p-value
  p_holm     real,                          -- corrected for the other rows (Holm)
  gate       text not null,                 -- JSON: the gate as it was
  detail     text not null,                 -- JSON: kind, method, bounds, missing, interim, notes
  decided_at text not null,
  primary key (run_id, round, position)
) strict, without rowid;
create trigger decision_is_kept before update on decision
begin select raise(abort, 'decisions are not rewritten'); end;

create table manual_grade (                 -- human grades of answers; append-only
  id           integer primary key,         -- of a person's grades of an answer the highest counts
  cell_id      text not null references cell (id), -- where it was graded
  experiment   text not null,
  case_id      text not null,
  request_hash text not null,               -- with answer_no: the answer, whichever runs it is in
  answer_no    integer not null,
  actor        text not null,               -- who graded
  scale        text not null check (scale in ('', 'thumbs', '1-5', '0-1')), -- '': a flag alone
  score        real,                        -- 0-1; null for a flag alone
  passed       integer,                     -- 1 or 0; null for a flag alone
  criteria     text not null default '{}',  -- JSON: criterion to score, 0-1
  note         text not null default '',
  flagged      integer not null check (flagged in (0, 1)), -- 1: flagged for review
  seed         integer not null,            -- of the random order of cases that was gone through
  graded_at    text not null,
  origin       text references run_origin (run_id) -- run that it came with; null: graded here
) strict;
create index manual_grade_by_answer on manual_grade (experiment, case_id, request_hash, answer_no);
create index manual_grade_flagged on manual_grade (experiment, case_id) where flagged = 1;
create trigger manual_grade_is_kept before update on manual_grade
when new.note <> '' or (new.id, new.cell_id, new.experiment, new.case_id, new.request_hash,
    new.answer_no, new.actor, new.scale, new.score, new.passed, new.criteria, new.flagged, new.seed,
    new.graded_at, new.origin)
  is not (old.id, old.cell_id, old.experiment, old.case_id, old.request_hash, old.answer_no,
    old.actor, old.scale, old.score, old.passed, old.criteria, old.flagged, old.seed, old.graded_at,
    old.origin)
begin select raise(abort, 'grades are only added to'); end;

create table judge_approval (               -- what the judges of a run were allowed to decide
  run_id      text primary key references run (id),
  judges      text not null,                -- JSON: names of the models that judge
  approved    integer not null check (approved in (0, 1)),
  reason      text not null,                -- why not, in words
  kappa       real,                         -- agreement with people; null if never measured
  lower_bound real,                         -- one-sided 95%, over cases; the approval goes by it
  n           integer not null,             -- labels it rests on
  cases       integer not null,             -- of the labels
  floor       real not null,
  passes      integer not null,             -- labels: answers that people let pass
  true_passes integer not null,             -- of these, passed by the judges
  fails       integer not null,
  true_fails  integer not null
) strict, without rowid;

create table suggestion (                   -- a change of a prompt that was suggested, and its fate
  id               text primary key,        -- 12 hex: the first digits of its hash
  hash             text not null unique,    -- of experiment, prompt, base_hash and diff
  experiment       text not null,
  prompt           text not null,
  path             text not null,           -- file of the prompt, from the project's root
  base_hash        text not null,           -- version that it changes
  new_hash         text,                    -- version that it makes; null if it makes none
  diff             text not null,           -- unified, of this one file
  note             text not null,           -- reason, by the author of the diff
  targets          text not null,           -- JSON: criteria, checks or graders it is to help
  guardrails       text not null,           -- JSON: list of {rule, ok, detail}
  evidence         text not null,           -- JSON: what trying it showed; see Suggestions
  -- refused, tried, proposed, approved, applied, rejected, superseded; see Suggestions
  status           text not null check (status in ('refused', 'tried', 'proposed', 'approved',
                     'applied', 'rejected', 'superseded')),
  forced           integer not null default 0 check (forced in (0, 1)), -- 1: proposed unproven
  branch           text,                    -- where it was proposed
  pull_request     integer,                 -- number; null if there is none
  pull_request_url text,
  commit_id        text,                    -- that put it into the repository
  decided_by       text,
  decided_at       text,
  reason           text,                    -- why it was refused, rejected or superseded
  edited_from      text references suggestion (id), -- suggestion that it was edited from
  author           text,                    -- person who edited it; null if a model wrote it
  simulated        integer not null check (simulated in (0, 1)),
  cost_microusd    integer not null,        -- of asking for it and trying it
  runs             text not null default '[]', -- JSON: ids of the runs that tried it
  -- refine, optimize: a small change, or several by a search, which may go further
  made_by          text not null default 'refine' check (made_by in ('refine', 'optimize')),
  created_at       text not null
) strict;
create index suggestion_by_experiment on suggestion (experiment, created_at);

create table suggestion_approval (          -- people who approved a suggestion; append-only
  id         integer primary key,
  suggestion text not null references suggestion (id),
  actor      text not null,                 -- login or e-mail address
  made_at    text not null,
  unique (suggestion, actor)
) strict;

create table suggestion_comment (           -- comments on a suggestion; append-only
  id         integer primary key,
  suggestion text not null references suggestion (id),
  actor      text not null,
  text       text not null,
  made_at    text not null
) strict;
create index suggestion_comment_by_suggestion on suggestion_comment (suggestion, id);

create table notification (                 -- outbox: what people are told, and whether it was sent
  id         text primary key,              -- sent with it: receivers drop a second one by it
  recipient  text not null,                 -- its name in edison.yaml
  address    text not null default '',      -- of mail, one of its addresses
  occasion   text not null,                 -- alert, budget, run_failed, ..., or digest
  message    text not null,                 -- JSON, by notification.schema.json
  -- waiting: not sent yet; digested: sent as part of the digest; failed: given up
  state      text not null check (state in ('waiting', 'sent', 'digested', 'failed')),
  attempts   integer not null default 0,    -- times that sending it failed
  error      text not null default '',      -- why it failed the last time
  digest     text references notification (id), -- the message it is part of; null for none
  created_at text not null,
  due_at     text not null,                 -- next attempt
  done_at    text                           -- when it was sent or given up
) strict;
create index notification_waiting on notification (due_at) where state = 'waiting';
create index notification_done on notification (recipient, address, done_at) where done_at is not null;

create table loop (                         -- prompts that are measured and refined again and again
  id              text primary key,
  experiment      text not null,
  prompt          text not null,            -- several are separated by a comma
  mode            text not null check (mode in ('review', 'auto')), -- who takes suggestions
  -- where it goes on: measuring, deciding, refining, reviewing, committing, confirming, reporting,
  -- done; see Loops
  point           text not null check (point in ('measuring', 'deciding', 'refining', 'reviewing',
                    'committing', 'confirming', 'reporting', 'done')),
  max_iterations  integer not null,
  budget_microusd integer not null,         -- most that all of it may cost
  branch          text,                     -- that it commits to; null where people decide
  base_commit     text,                     -- what the branch starts from
  stopped_by      text,                     -- the rule that ended it; null while it goes on
  evidence        text not null default '{}', -- JSON: first against best; see Suggestions
  simulated       integer not null default 0 check (simulated in (0, 1)),
  started_at      text not null,
  finished_at     text
) strict;
create index loop_by_experiment on loop (experiment, started_at);

create table loop_iteration (               -- what a loop measured, one run after the other
  loop       text not null references loop (id),
  number     integer not null,              -- 1 is the prompts as they were at first
  prompt     text not null,                 -- a run of several prompts has a row for each
  path       text not null,                 -- file of the prompt, from the project's root
  version    text not null,
  text       text not null,                 -- of the prompt's file
  run_id     text references run (id),      -- null until it is measured
  score      real,                          -- mean over the training cases
  cases      integer,                       -- training cases that have a score
  suggestion text references suggestion (id), -- that made this version; null for none
  dropped    text,                          -- why it is not measured again; null while in play
  -- what refining it came to: suggested, nothing, no_weakness, settled; null until then
  outcome    text,
  pending    text references suggestion (id), -- what waits for a decision, or for its commit
  primary key (loop, number, prompt)
) strict, without rowid;
create index loop_iteration_by_pending on loop_iteration (pending) where pending is not null;

-- Sums of finished runs, so that no page has to add up cells. Written again when a run ends again.

create table rollup_run (                   -- a side of a run, over all prompts and models
  run_id           text not null references run (id),
  side             text not null,
  cells            integer not null,        -- finished, one way or another
  ok               integer not null,
  malformed        integer not null,
  error            integer not null,
  blocked          integer not null,
  skipped          integer not null,
  composite        real,                    -- mean over cases of the mean over repeats
  composite_low    real,                    -- interval and its method; null if not computed
  composite_high   real,
  composite_n      integer not null,        -- cases that have a composite
  composite_method text,
  pass_rate        real,
  pass_low         real,
  pass_high        real,
  pass_n           integer not null,        -- cases that passed or failed
  pass_method      text,
  answers          integer not null,        -- different answers that the cells point to
  bought           integer not null,        -- of these, bought by this run
  cost_microusd    integer not null,        -- of those bought; judges and lost calls are apart
  saved_microusd   integer not null,        -- of the others: what reuse saved
  tokens_in        integer not null,
  tokens_out       integer not null,
  latency_p50_ms   integer,
  latency_p95_ms   integer,                 -- null under 60 answers
  cost_low         real,                    -- 95% interval of the mean cost of an answer
  cost_high        real,
  latency_p50_low  integer,                 -- 95% interval of the median
  latency_p50_high integer,
  missing          integer not null default 0, -- answers without a score, for an error
  composite_worst  real,                    -- if each of them were worth 0; null if none misses
  composite_best   real,                    -- if each of them were worth 1
  pass_worst       real,                    -- if none of them passed
  pass_best        real,                    -- if all of them passed
  cut_off          integer not null default 0, -- of the answers, cut off at max_tokens
  primary key (run_id, side)
) strict, without rowid;

create table rollup_model (                 -- a prompt with a model
  run_id           text not null references run (id),
  side             text not null,
  prompt           text not null,
  model            text not null,
  version          text not null,           -- hash of the prompt
  cells            integer not null,        -- the other columns are those of rollup_run
  ok               integer not null,
  malformed        integer not null,
  error            integer not null,
  blocked          integer not null,
  skipped          integer not null,
  composite        real,
  composite_low    real,
  composite_high   real,
  composite_n      integer not null,
  composite_method text,
  pass_rate        real,
  pass_low         real,
  pass_high        real,
  pass_n           integer not null,
  pass_method      text,
  answers          integer not null,
  bought           integer not null,
  cost_microusd    integer not null,
  saved_microusd   integer not null,
  tokens_in        integer not null,
  tokens_out       integer not null,
  latency_p50_ms   integer,
  latency_p95_ms   integer,
  cost_low         real,
  cost_high        real,
  latency_p50_low  integer,
  latency_p50_high integer,
  missing          integer not null default 0,
  composite_worst  real,
  composite_best   real,
  pass_worst       real,
  pass_best        real,
  cut_off          integer not null default 0,
  primary key (run_id, side, prompt, model)
) strict, without rowid;

create table rollup_case (                  -- a case, over all prompts, models and repeats of a side
  run_id        text not null references run (id),
  side          text not null,
  case_id       text not null,
  cells         integer not null,
  ok            integer not null,
  malformed     integer not null,
  error         integer not null,
  blocked       integer not null,
  skipped       integer not null,
  passed        integer not null,
  failed        integer not null,
  composite     real,                       -- mean over its cells
  lowest        real,                       -- composite of its worst cell
  cost_microusd integer not null,           -- of its answers, reused ones included
  tokens        integer not null,           -- in and out
  latency_ms    integer,                    -- of its slowest answer
  primary key (run_id, side, case_id)
) strict, without rowid;
create index rollup_case_worst on rollup_case (run_id, side, lowest, composite, case_id);
create index rollup_case_best on rollup_case (run_id, side, composite, case_id);
create index rollup_case_cost on rollup_case (run_id, side, cost_microusd, case_id);
create index rollup_case_tokens on rollup_case (run_id, side, tokens, case_id);
create index rollup_case_latency on rollup_case (run_id, side, latency_ms, case_id);

create table rollup_mark (                  -- what cases are found by: tags, failures, statuses
  run_id  text not null references run (id),
  side    text not null,
  kind    text not null check (kind in ('tag', 'failed', 'status')),
  value   text not null,                    -- tag; status; component that fails, or '' for the grade
  case_id text not null,
  primary key (run_id, side, kind, value, case_id)
) strict, without rowid;

create table rollup_marked (                -- how many cases have each of these marks
  run_id text not null references run (id),
  side   text not null,
  kind   text not null,                     -- that of rollup_mark; 'all' for every case
  value  text not null,
  cases  integer not null,
  primary key (run_id, side, kind, value)
) strict, without rowid;

create table rollup_component (             -- a check, criterion or grader with a prompt and model
  run_id  text not null references run (id),
  side    text not null,
  prompt  text not null,
  model   text not null,
  name    text not null,
  kind    text not null,                    -- check, rubric, criterion, grader
  n       integer not null,                 -- cells with a score
  mean    real,
  min     real,
  max     real,
  sd      real,                             -- of the scores of cells; null under 2
  passed  integer not null,
  failed  integer not null,
  errors  integer not null,
  skipped integer not null,
  bins    text not null,                    -- JSON: how many scores in each tenth from 0 to 1
  primary key (run_id, side, prompt, model, kind, name)
) strict, without rowid;

create table rollup_component_total (       -- a check, criterion or grader over all of a side
  run_id  text not null references run (id),
  side    text not null,
  name    text not null,
  kind    text not null,
  place   integer not null,                 -- the order in which components first came in
  n       integer not null,                 -- cells with a score
  passed  integer,                          -- null without a threshold
  mean    real,
  errors  integer not null,
  blocked integer not null,                 -- answers that a safety screen kept back
  redacted integer not null,                -- answers of which a safety screen removed a part
  primary key (run_id, side, kind, name)
) strict, without rowid;

create table rollup_reliability (           -- how often k repeats of a case all pass, or any does
  run_id        text not null references run (id),
  side          text not null,
  prompt        text not null,              -- empty, like model, over all of them
  model         text not null,
  k             integer not null,           -- repeats
  pass_all      real not null,              -- pass^k: the mean over cases of C(c,k)/C(r,k)
  pass_all_low  real,
  pass_all_high real,
  pass_any      real not null,              -- pass@k: the mean of 1 - C(r-c,k)/C(r,k)
  pass_any_low  real,
  pass_any_high real,
  n             integer not null,           -- cases with k graded repeats
  method        text not null,
  primary key (run_id, side, prompt, model, k)
) strict, without rowid;

create table rollup_slice (                 -- a slice of the cases, with a prompt and model
  run_id           text not null references run (id),
  side             text not null,
  prompt           text not null,           -- empty, like model, over all of them
  model            text not null,
  dimension        text not null,           -- tag, length, difficulty, kind
  value            text not null,           -- such as billing, XS, hard, golden; (none)
  cases            integer not null,        -- with an answer that was graded
  composite        real,
  composite_low    real,
  composite_high   real,
  composite_n      integer not null,
  composite_method text,
  pass_rate        real,
  pass_low         real,
  pass_high        real,
  pass_n           integer not null,
  pass_method      text,
  difference       real,                    -- its mean composite minus that of the other cases
  p                real,                    -- that chance makes such a difference; null: too few
  p_adjusted       real,                    -- Benjamini-Hochberg over the run's comparisons
  family           integer not null,        -- how many comparisons that were
  stands_out       integer not null check (stands_out in (0, 1)), -- p_adjusted at most 0.1
  primary key (run_id, side, prompt, model, dimension, value)
) strict, without rowid;

create table rollup_spending (              -- what a run spent, its judges and lost calls included
  run_id        text not null references run (id),
  day           text not null,              -- UTC date
  model         text not null,
  phase         text not null,              -- generate, judge, ...
  calls         integer not null,           -- answered
  released      integer not null,           -- failed and not charged
  unknown       integer not null,           -- perhaps charged; counted at their estimate
  cost_microusd integer not null,
  tokens_in     integer not null,
  tokens_out    integer not null,
  latency_ms    integer not null,           -- of all answers together
  within_100_ms   integer not null,         -- answers that took no longer
  within_250_ms   integer not null,
  within_500_ms   integer not null,
  within_1000_ms  integer not null,
  within_2500_ms  integer not null,
  within_5000_ms  integer not null,
  within_10000_ms integer not null,
  within_30000_ms integer not null,
  within_60000_ms integer not null,
  primary key (run_id, day, model, phase)
) strict, without rowid;

create table rollup_calls (                 -- the calls of a run, and the answers that it rests on
  run_id     text primary key references run (id),
  attempts   integer not null,              -- at all calls
  retried    integer not null,              -- of these, at a call that the process had tried before
  estimated  integer not null,              -- answers whose provider did not count their tokens
  reused     integer not null,              -- answers, judges' too, that it did not buy
  tokens_in  integer not null,              -- of all answers that it rests on, each once
  tokens_out integer not null
) strict, without rowid;

create table rollup_paid (                  -- what the calls of a run cost, by what they were for
  run_id        text not null references run (id),
  prompt        text not null,              -- empty, like model, for judges and graders
  model         text not null,
  cost_microusd integer not null,           -- retries and calls of unknown fate included
  primary key (run_id, prompt, model)
) strict, without rowid;

-- What came from elsewhere with a run is shown with that run. These two say what of it counts.

create view own_attempt as                  -- tries at calls that were made here, and paid for here
select * from attempt where origin is null;

create view counted_grade as                -- human grades from here, or with a trusted signature
select * from manual_grade
where origin is null or origin in (select run_id from run_origin where trusted = 1);

-- Views for people who ask with SQL. Columns are added, not renamed.

create view results as                      -- one row for each cell, with its answer
select r.experiment, c.run_id, r.created_at as run_started, r.simulated, c.id as cell, c.side,
  c.prompt, c.version, c.model, c.case_id, c.repeat, c.status, c.composite, c.passed, c.error,
  c.reason, a.cost_microusd, a.tokens_in, a.tokens_out, a.latency_ms, a.finish_reason,
  a.served_model, t.text
from cell c
join run r on r.id = c.run_id
left join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no
left join answer_text t on t.request_hash = c.request_hash and t.answer_no = c.answer_no;

create view spending as                     -- what was spent by day, experiment, model and phase
select substr(t.sent_at, 1, 10) as day, coalesce(t.experiment, r.experiment) as experiment,
  t.model, t.phase,
  sum(t.state = 'settled') as calls, sum(t.state = 'unknown') as unknown,
  sum(case t.state when 'settled' then t.cost_microusd when 'released' then 0
      else t.est_microusd end) as cost_microusd,
  coalesce(sum(a.tokens_in), 0) as tokens_in, coalesce(sum(a.tokens_out), 0) as tokens_out
from own_attempt t
left join run r on r.id = t.run_id
left join answer a on a.attempt = t.id
group by 1, 2, 3, 4;

create view latest_runs as                  -- the newest run of each experiment, trials aside
select r.experiment, r.id as run_id, r.trigger, r.status, r.verdict, r.complete, r.simulated,
  r.partial, r.stopped_by, r.cells_planned, r.created_at, r.finished_at,
  (select coalesce(sum(b.microusd), 0) from booked b where b.scope = 'run:' || r.id)
    as cost_microusd
from run r
where r.rowid = (select l.rowid from run l
                 where l.experiment = r.experiment and l.trigger <> 'refine'
                 order by l.created_at desc, l.rowid desc limit 1);

create view failed_checks as                -- every component of a grade that failed or broke
select r.experiment, c.run_id, c.side, c.prompt, c.model, c.case_id, c.repeat, p.name, p.kind,
  p.status, p.score, p.reason, c.id as cell
from component p
join cell c on c.id = p.cell_id
join run r on r.id = c.run_id
where p.passed = 0 or p.status = 'error';

create view head_to_head as                 -- two answers to a case, and which of them was preferred
select r.experiment, x.run_id, r.created_at as run_started, r.simulated, a.prompt, a.side as a_side,
  a.model as a_model, b.side as b_side, b.model as b_model, a.case_id, a.repeat, x.judge,
  case when x.status <> 'ok' then null when x.ab_winner = x.ba_winner then x.ab_winner
    else 'tie' end as winner,
  x.ab_winner = x.ba_winner as consistent, x.ab_winner, x.ba_winner, x.ab_reason, x.ba_reason,
  x.chars_a, x.chars_b, x.asked, x.status, x.a_cell, x.b_cell
from comparison x
join cell a on a.id = x.a_cell
join cell b on b.id = x.b_cell
join run r on r.id = x.run_id;

create view judge_scores as                 -- scores of each judge for each answer
select r.experiment, c.run_id, r.simulated, c.side, c.prompt, c.model, c.case_id, c.repeat, o.judge,
  o.criterion, o.raw, o.score, o.missing, o.reason, c.id as cell
from judge_score o
join cell c on c.id = o.cell_id
join run r on r.id = c.run_id;

create view human_grades as                 -- answers that people graded: the mean over people
select experiment, case_id, request_hash, answer_no, count(score) as people, avg(score) as score,
  avg(case when scale <> 'thumbs' then score end) as rating, avg(passed) as passed,
  max(flagged) as flagged, min(seed) as seed
from counted_grade
where id in (select max(id) from counted_grade group by experiment, case_id, request_hash, answer_no, actor)
group by experiment, case_id, request_hash, answer_no;
