"""The OpenAPI 3.1 document of the HTTP interface, published as schemas/openapi.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

from edison_ci.web.page_context import PREFIX

API = f"{PREFIX}/api/v1"
MOST_BYTES = 65_536
"""Most bytes of a body."""

_INTEGER, _TEXT, _FLAG = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
_RANGE = {
    "type": ["object", "null"],
    "description": "From and to; null if a price is not known.",
    "properties": {"low": {"type": "number"}, "high": {"type": "number"}},
}


def _or_null(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


def _object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], **more}


_AMOUNT = {"type": "integer", "minimum": 0, "maximum": 10**12}
_NAMES = {
    "project": {**_TEXT, "minLength": 1, "maxLength": 100},
    "team": {**_TEXT, "maxLength": 100},
}
_BUDGET = {"type": "number", "exclusiveMinimum": 0, "description": "Dollars."}
_REQUEST = _object(
    {
        "id": _INTEGER,
        "what": {"type": "object", "description": "The change that was asked for."},
        "by": _TEXT,
        "asked_at": {**_TEXT, "description": "ISO-8601, UTC."},
        "taken_at": _or_null("string", description="When the run answered; null while it waits."),
        "done": _or_null("boolean", description="false: refused; null while it waits."),
        "said": {**_TEXT, "description": "What changed, or why it was refused."},
    },
    "id", "what", "by", "asked_at", "taken_at", "done", "said",
)  # fmt: skip
_MODEL = _object(
    {
        "name": {**_TEXT, "description": "With its phase, if that is not answering."},
        "model": {**_TEXT, "description": "Its name in models.yaml, by which it is steered."},
        "concurrency": _or_null("integer", description="Calls at once; null before the first."),
        "in_flight": _INTEGER,
        "done": _INTEGER,
        "waiting": _INTEGER,
        "errors": _INTEGER,
        "paused": _FLAG,
        "stopped": {**_FLAG, "description": "Whether it was stopped after errors."},
    },
    "name", "model", "concurrency", "in_flight", "done", "waiting", "errors", "paused", "stopped",
)  # fmt: skip
_STATUSES = (
    "PENDING", "EXECUTING", "JUDGING", "AGGREGATING", "REFINING", "REVIEWING", "PAUSED",
    "COMPLETED", "FAILED", "CANCELLED",
)  # fmt: skip
_SCHEMAS: dict[str, Any] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "code": _TEXT,
                    "message": _TEXT,
                    "hint": _TEXT,
                    "limit": {**_TEXT, "description": "The limit without room for a lease."},
                },
                "code", "message", "hint",
            )
        },
        "error",
    ),
    "Plan": _object(
        {
            "experiment": _TEXT,
            "plan_hash": {**_TEXT, "description": "Sent back to start exactly this plan."},
            "simulated": _FLAG,
            "cases": _INTEGER,
            "cells": _INTEGER,
            "calls": _object({"to_make": _INTEGER, "reused": _INTEGER}, "to_make", "reused"),
            "cost_microusd": _RANGE,
            "budget_microusd": _or_null("integer", description="The most that a run may cost."),
            "blockers": {
                "type": "array",
                "items": _TEXT,
                "description": "Why it could not be started here.",
            },
            "dispatch": _or_null(
                "object",
                properties={"repository": _TEXT, "workflow_url": _TEXT},
                required=["repository", "workflow_url"],
                description="The repository on GitHub that would be asked to run it, as keys "
                "are missing here; null if it runs here or cannot be started.",
            ),
        },
        "experiment", "plan_hash", "cases", "cells", "calls", "cost_microusd", "budget_microusd",
        "blockers", "dispatch",
    ),
    "Start": _object(
        {
            "plan_hash": {**_TEXT, "minLength": 1, "description": "Of the plan that was read."},
            "budget_usd": _BUDGET,
        },
        "plan_hash",
        additionalProperties=False,
    ),
    "Dispatch": _object(
        {
            "request": {**_TEXT, "description": "Part of the title of the workflow's run."},
            "experiment": _TEXT,
            "workflow_url": {**_TEXT, "description": "Where GitHub lists the workflow's runs."},
            "asked_at": {**_TEXT, "description": "ISO-8601, UTC."},
            "accepted_at": {**_TEXT, "description": "ISO-8601, UTC."},
        },
        "request", "experiment", "workflow_url", "asked_at", "accepted_at",
    ),
    "Resume": _object({"budget_usd": _BUDGET}, additionalProperties=False),
    "Nothing": _object({}, additionalProperties=False),
    "Change": _object(
        {
            "action": {"enum": ["concurrency", "pause", "resume", "requeue", "budget"]},
            "model": {**_TEXT, "description": "Of concurrency, pause and resume."},
            "calls": {"type": "integer", "minimum": 1, "maximum": 1000},
            "budget_usd": _BUDGET,
        },
        "action",
        additionalProperties=False,
    ),
    "Run": _object(
        {
            "run_id": _TEXT,
            "experiment": _TEXT,
            "status": {"enum": [*_STATUSES]},
            "verdict": _or_null("string"),
            "stopped_by": _or_null("string"),
            "moving": {**_FLAG, "description": "Whether a process works on it."},
            "created_at": _TEXT,
            "finished_at": _or_null("string"),
            "done": {**_INTEGER, "description": "Cells that are done."},
            "total": {**_INTEGER, "description": "Cells that are planned."},
            "errors": _INTEGER,
            "models": {"type": "array", "items": _MODEL},
            "budget": _object(
                {
                    "limit_microusd": _or_null("integer"),
                    "used_microusd": _INTEGER,
                    "left_microusd": _or_null("integer"),
                },
                "limit_microusd", "used_microusd", "left_microusd",
            ),
            "steering": {"type": "array", "items": _REQUEST},
            "answer": {**_REQUEST, "description": "Of the change that was just asked for."},
        },
        "run_id", "experiment", "status", "moving", "created_at", "done", "total", "errors",
        "models", "budget", "steering",
    ),
    "LeaseRequest": _object(
        {
            **_NAMES,
            "spent_microusd": {**_AMOUNT, "description": "Booked for this lease so far."},
            "needs_microusd": {
                **_AMOUNT,
                "description": "What it has to allow in all, so that the next call can be made.",
            },
        },
        "project", "spent_microusd", "needs_microusd",
        additionalProperties=False,
    ),
    "LeaseReturn": _object(
        {**_NAMES, "spent_microusd": _AMOUNT},
        "project", "spent_microusd",
        additionalProperties=False,
    ),
    "Lease": _object(
        {
            "lease": _TEXT,
            "month": {**_TEXT, "description": "Such as 2026-11, UTC, by the clock of the site."},
            "granted_microusd": {**_AMOUNT, "description": "What may be spent in all."},
            "spent_microusd": _AMOUNT,
            "expires_in_s": {**_INTEGER, "description": "Until it has to be asked for again."},
            "returned": _FLAG,
        },
        "lease", "month", "granted_microusd", "spent_microusd", "expires_in_s", "returned",
    ),
    "Budget": _object(
        {
            "month": _TEXT,
            "limits": {
                "type": "array",
                "items": _object(
                    {
                        "name": {**_TEXT, "description": "Its key in edison.yaml."},
                        "scope": {"enum": ["all", "team", "project"]},
                        "of": _TEXT,
                        "limit_microusd": _AMOUNT,
                        "used_microusd": {
                            **_AMOUNT,
                            "description": "Spent, and what open leases may still spend.",
                        },
                    },
                    "name", "scope", "of", "limit_microusd", "used_microusd",
                ),
            },
        },
        "month", "limits",
    ),
}  # fmt: skip


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


_ERRORS = {
    "400": "The request is not valid.",
    "401": "The token is missing or not valid.",
    "403": "The role of the token's member is not sufficient.",
    "404": "There is no such experiment, run or lease.",
    "409": "It is not possible now: the plan changed, keys are missing, a limit has no room, or "
    "the run or GitHub refused it.",
    "413": f"The body has more than {MOST_BYTES} bytes.",
    "429": "Too many requests in a minute.",
}


def _operation(
    name: str, summary: str, status: str, reply: str, *, body: str = ""
) -> dict[str, Any]:
    errors = {
        code: {"description": text, "content": _content("Error")} for code, text in _ERRORS.items()
    }
    found: dict[str, Any] = {"operationId": name, "summary": summary}
    if body == "Start":
        found["parameters"] = [{"$ref": "#/components/parameters/IdempotencyKey"}]
    if body:
        required = body in ("Start", "Change", "LeaseRequest", "LeaseReturn")
        found["requestBody"] = {"required": required, "content": _content(body)}
    said = {status: {"description": "Done.", "content": _content(reply)}}
    if body == "Start":
        text = "GitHub was asked to run it, as keys are missing here, and confirmed that."
        said["202"] = {"description": text, "content": _content("Dispatch")}
        text = "GitHub was asked to run it, and it is not known whether it does."
        errors["502"] = {"description": text, "content": _content("Error")}
    return {**found, "responses": {**said, **errors}}


def _named(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": _TEXT}


def _paths() -> dict[str, Any]:
    experiment = [_named("experiment", "Name of an experiment.")]
    run = [_named("run", "Id of a run, or an experiment for its newest run.")]
    lease = [_named("lease", "32 hexadecimal digits, chosen by the sender, new for each lease.")]
    lend = "Lease money of the shared budget, more of it, or for longer; repeated, it is one lease"
    start = "Start a run of the plan that was read; the same key starts one run"
    return {
        "/experiments/{experiment}/plan": {
            "parameters": experiment,
            "get": _operation("getPlan", "What a run would do and cost", "200", "Plan"),
        },
        "/experiments/{experiment}/runs": {
            "parameters": experiment,
            "post": _operation("startRun", start, "201", "Run", body="Start"),
        },
        "/runs/{run}": {
            "parameters": run,
            "get": _operation("getRun", "Status, progress and spend of a run", "200", "Run"),
        },
        "/runs/{run}/pause": {
            "parameters": run,
            "post": _operation("pauseRun", "Pause a run", "202", "Run", body="Nothing"),
        },
        "/runs/{run}/resume": {
            "parameters": run,
            "post": _operation("resumeRun", "Resume a run", "202", "Run", body="Resume"),
        },
        "/runs/{run}/cancel": {
            "parameters": run,
            "post": _operation("cancelRun", "Cancel a run for good", "202", "Run", body="Nothing"),
        },
        "/runs/{run}/steer": {
            "parameters": run,
            "post": _operation("steerRun", "Change a run", "200", "Run", body="Change"),
        },
        "/budget": {
            "get": _operation("getBudget", "Limits of this month and their use", "200", "Budget"),
        },
        "/budget/leases/{lease}": {
            "parameters": lease,
            "post": _operation("lease", lend, "200", "Lease", body="LeaseRequest"),
        },
        "/budget/leases/{lease}/return": {
            "parameters": lease,
            "post": _operation(
                "returnLease", "Return what was not spent", "200", "Lease", body="LeaseReturn"
            ),
        },
        "/openapi.json": {
            "get": {
                "operationId": "getDocument",
                "summary": "This document",
                "responses": {
                    "200": {
                        "description": "Done.",
                        "content": {"application/json": {"schema": {"type": "object"}}},
                    }
                },
            }
        },
    }


def document(served: Collection[str] | None = None) -> dict[str, Any]:
    """Return the document; with `served`, of these addresses only."""
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": "Chosen by the sender, new for each start, 1 to 150 characters.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 150},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "edison serve",
            "version": "1",
            "description": "Plan, start, follow, steer, pause, resume and cancel runs; "
            "lease money of a budget that machines share.",
        },
        "servers": [{"url": API}],
        "security": [{"token": []}],
        "paths": {
            path: about for path, about in _paths().items() if served is None or path in served
        },
        "components": {
            "schemas": _SCHEMAS,
            "parameters": {"IdempotencyKey": key},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of a member: edison roles token.",
                }
            },
        },
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(document(), indent=2) + "\n", "utf-8")
