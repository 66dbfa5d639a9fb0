"""A file of each kind that has about every key there is."""

from __future__ import annotations

import hashlib
import json

FULL = {
    "edison": """
version: 1
project: Full House
description: Every key once.
team: support
paths: {experiments: e, prompts: p, rubrics: r, datasets: d, models: m.yaml}
results: .edison/results.db
defaults: {model: small, judge: judge, refiner: small, budget_usd: 5, max_iterations: 3}
settings:
  allow_synthetic_datasets: true
  require_review_approval: true
  approvals: 1
  retention_days: 0
  backups: 0
  reuse_days: 0
  allow_code: false
  redact_pii_before_storage: false
  private: false
  monthly_budget_usd: 500
shared_budget: {url_env: SITE_URL, token_env: SITE_TOKEN, if_unreachable: stop}
limits: {monthly_usd: 900, teams: {support: 200}, projects: {full-house: 50}}
members: [{github: ada, email: ada@example.com, role: owner}]
cache: {url_env: ANSWERS_URL, token_env: ANSWERS_TOKEN, unsigned: ignore}
features: {acme: {words: 5}}
notifications:
  - {name: chat, on: [alert, budget], webhook_env: HOOK, format: slack}
  - {name: program, on: [run_completed], webhook_env: HOOK, secret_env: SIGN, texts: false}
  - {name: issues, on: [alert], github_issues: true}
  - name: mail
    on: [run_failed]
    smtp:
      host_env: MAIL
      from: a@b.example
      to: [c@d.example]
      user_env: MAIL_USER
      password_env: MAIL_PASSWORD
      starttls: true
""",
    "models": """
version: 1
small: {provider: sim, model: small, options: {latency_ms: 10, noise: 0.1}}
big:
  provider: openai
  model: gpt-4o
  key_env: OPENAI_API_KEY
  options: {organization: acme}
  params: {temperature: 0.2, max_tokens: 10, top_p: 1, seed: 1, stop: [END], extra: {top_k: 1}}
  price: {in: 1, out: 2, cached_in: 0.5}
  limits: {concurrency: 5, rpm: 60, tpm: 1000, timeout_s: 30, attempts: 2}
  fallback: [small]
bigger: {use: big, params: {temperature: 0.4}}
aws:
  provider: bedrock
  model: m
  options: {region: eu-central-1}
  key_env: {access_key_id: AWS_ACCESS_KEY_ID, secret_access_key: AWS_SECRET_ACCESS_KEY}
  price: free
old: {provider: replay, store: recordings/a.jsonl}
""",
    "experiment": """
version: 1
experiment: full
title: Everything
description: Every key once.
archived: false
objective: >-
  Answer customers briefly, kindly and correctly.
prompts: [prompts/a.md, prompts/b.md]
models: [small, {use: big, params: {temperature: [0.2, 1.0], max_tokens: 64}}]
datasets:
  - datasets/a.jsonl
  - path: datasets/b.csv
    kind: adversarial
    map: {Question: question}
    where: {tags: [a, b], kind: golden, difficulty: ">=3", id: x, metadata.lang: [de, en]}
    take: 100
    limits: {max_rows: 5000, max_bytes: 50000000}
split: {holdout: 0.4, seed: 0}
repeats: 3
checks:
  - contains: "{{ expected }}"
  - not: {regex: '(?i)as an ai'}
  - words: {max: 120, weight: 0.5}
  - any_of: [{is_json: {exact: true}}, {all_of: [{is_xml: null}, {chars: {min: 3}}]}]
rubric: {path: rubrics/support.yaml, weight: 2}
judges:
  pointwise: [judge-a, judge-b]
  combine: median
  pairwise: {by: judge-a, all_pairs: true}
  graders: [prompts/tone.md, {prompt: prompts/x.md, by: judge-a, weight: 1, threshold: 0.5}]
safety: {pii: {action: block, kinds: {e-mail: redact, ip: off}, names_by: en_core_web_sm},
         jailbreak: flag, secrets: block, inputs: {pii: redact, jailbreak: flag, secrets: block},
         moderation: {by: mod, action: flag, threshold: 0.7}, toxicity: {by: mod}}
gates:
  - {metric: composite, no_worse_than: base, margin: 10pp, confidence: 95%, if_unclear:
    more_repeats}
  - {metric: pass_rate, at_least: 60%, per: overall, use: human}
  - {metric: criterion.Tone of voice, at_least: 0.5}
  - {metric: cost_usd.mean, no_worse_than: base, margin: 10%, guarantee: strict}
  - {metric: latency_ms.p95, at_most: 2000}
  - {metric: safety.pii, at_most: 0%}
  - {metric: flips, at_most: 2%}
  - {metric: pass_rate, no_worse_than: production, slices: worst, margin: 20pp}
  - {metric: composite, no_worse_than: {anchor: releases/v1.4}, margin: 5pp}
max_errors: 20%
stop: {max_iterations: 10, min_delta: 0.02, window: 3, budget_usd: 100, daily_budget_usd: 10,
       max_total_tokens: 1000000, alert_at: 0.8, prune_weak_prompts: true,
       stop_if_no_refinement: true, adaptive_sampling: false}
refine: {by: big, examples: 10, candidates: 2, max_length_change: 15%, allow: [few_shots]}
schedule: [{name: weekdays, cron: "0 9 * * 1-5", enabled: true, budget_usd: 2}]
production: {files: "logs/*.jsonl", sample: 50, input: message, prompt: prompts/a.md}
alerts: {drop: 10%, false_alarm_years: 20, predicted_below: 0.7, error_rate: 5%, latency_ms: 3000}
tags: [support]
features: {acme: {words: 5}}
""",
    "prompt": """
id: x
type: grader
inputs: {name: string, age: {type: number, default: 3}}
params: {temperature: 0}
expect: response+json
output: {type: object}
tools: [{name: search, description: Looks things up., parameters: {type: object}}]
syntax: jinja
scale: {min: 1, max: 5, labels: {"1": bad, "5": good}}
description: Grades.
production: "12345678"
version: 1
""",
    "rubric": """
version: 1
rubric: tone
normalize: true
pass_at: 0.7
calibration: {labels: labels/tone.jsonl, min_kappa: 0.6, min_n: 50}
criteria:
  - {name: Warmth, description: Sounds friendly and warm., weight: 0.5, scale: 0-10, required: true}
  - {name: Haste, description: Sounds as if in a hurry., weight: 1, min: 0.2, lower_is_better: true}
""",
    "dataset": """
- {id: a, input: {name: Ada}, expected: [1], tags: [x], difficulty: 5, cluster: c, metadata: {k: 1}}
- {name: Ada, age: 3, expected: null, tags: null, id: null, difficulty: null, metadata: null}
- {input: a variable called input, name: Ada}
""",
    "about": """
version: 1
description: Names of guests.
tags: [people, short]
owner: ann@example.com
""",
    "quarantine": """
version: 1
cases:
  - {experiment: a, case: b, reason: flaky, since: 2026-01-01, until: 2026-12-31, owner: ada}
""",
    "labels": json.dumps(
        {
            "case": "ada",
            "by": "ann@example.com",
            "scale": "1-5",
            "grade": 4,
            "criteria": {"Warmth": 9.5},
            "note": "kind",
            "at": "2026-11-15T08:00:00Z",
            "answer": hashlib.sha256(b"Hello, Ada!").hexdigest(),
            "output": "Hello, Ada!",
            "case_hash": "0123456789abcdef",
            "experiment": "hello",
            "run": "20261115T080000-c0ffee",
            "cell": "0a1b2c3d4e5f",
        }
    ),
    "judge_approvals": f"""
version: 1
approvals:
  - rubric: tone
    judges: [judge, judge-b]
    combine: median
    models: [sim/judge, sim/judge]
    models_hash: {"0" * 63}a
    rubric_hash: {"0" * 63}b
    instructions_hash: {"0" * 63}c
    labels_hash: {"0" * 63}d
    objective_hash: {"0" * 63}e
    kappa: 0.71
    lower_bound: 0.61
    n: 64
    cases: 64
    floor: 0.6
    min_n: 50
    bias: 0.04
    passes: 40
    true_passes: 37
    fails: 24
    true_fails: 17
    simulated: true
    date: 2026-11-15
""",
    "trust": """
version: 1
builtin: false
keys: [{env: KEY, hosts: ["https://h.example:443", "http://[::1]:8080"]}]
services: [{host: "https://h.example:443", paths: [/v1/ask], headers: [X-Tenant]}]
code: {allow: true, paths: [checks]}
budget_usd_max: 20
identities:
  bedrock: {role: "arn:aws:iam::123456789012:role/edison"}
  vertex:
    pool: projects/1/locations/global/workloadIdentityPools/pool/providers/github
    service_account: edison@acme.iam.gserviceaccount.com
  azure:
    tenant: 11111111-2222-3333-4444-555555555555
    client: 66666666-7777-8888-9999-000000000000
    hosts: ["https://acme.openai.azure.com"]
""",
    "secrets": f"""
version: 1
public_key: {"A" * 43}=
keys:
  - {{name: OPENAI_API_KEY, since: 2026-11-17, box: {"A" * 116}}}
""",
}
