"""The HTTP interface of programs: list, plan, start, follow, steer and stop runs, lease money.

A page of a list ends with the key of the next one, its last row: rows that are added meanwhile move
nothing, so that a program that follows the keys gets each row once.

A request has the token of a member; cookies do not count here, so no page can send one for its
visitor. The role is read for each request. Errors are JSON with a code, a message and a hint.
schemas/openapi.json describes each operation; tests check the replies against it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from datasette import Response

from edison_ci import feature, ranges
from edison_ci.access.site import Actor, Role
from edison_ci.api.run_control import RunControl, budget_microusd, steering_change
from edison_ci.api.run_start import (
    CannotStart,
    DispatchUnknown,
    PlanChanged,
    Start,
    StartPlan,
    resume_run,
    start_run,
)
from edison_ci.config.load import load_project
from edison_ci.errors import BusyError, EdisonError, ExitCode, RoleError, UsageError
from edison_ci.plan.plan import as_json as plan_json
from edison_ci.resources import resource_folder
from edison_ci.results.live_progress import steering_state
from edison_ci.results.run_lists import CellPage, RunPage, cells_page, runs_page
from edison_ci.results.run_result import RunResult
from edison_ci.results.scores import interval_json
from edison_ci.results.stored_runs import current_run, live_runs
from edison_ci.sanitize import json_text
from edison_ci.web.databases import settings_of
from edison_ci.web.identity import authenticate, caller_key, current_site, header
from edison_ci.web.page_context import PREFIX
from edison_ci.web.security import PAGE_HEADERS, RateLimit
from edison_ci.web.traces import error_mark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.access.site import Site
    from edison_ci.store.runs import Run
    from edison_ci.store.steering import Change
    from edison_ci.web.databases import ServerSettings

API = f"{PREFIX}/api/v1"
MOST_BYTES = 65_536
"""Most bytes of a body."""
PER_MINUTE = 120
"""Requests of a member."""
_MOST_MICROUSD = round(ranges.BUDGET_USD[1] * 1e6)
_limit = RateLimit(PER_MINUTE, time.monotonic)


class ApiError(EdisonError):
    """A request that is refused with its own status."""

    exit_code = ExitCode.INVALID

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", *, limit: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.own_code = code
        self.more = {"limit": limit} if limit else {}


class ApiRequest(NamedTuple):
    """A request of a member with the required role."""

    site: Site
    actor: Actor
    path: Mapping[str, str]
    body: Mapping[str, Any]
    key: str
    """The header Idempotency-Key."""
    settings: ServerSettings
    """Settings of the server."""
    query: Mapping[str, str] = MappingProxyType({})
    """What follows the question mark, each name once."""

    @property
    def offline(self) -> bool:
        """Whether the server makes no outgoing requests."""
        return self.settings.actions is not None and self.settings.actions.offline

    def home(self) -> Site:
        """Return the site, whose members sign in: the project itself, or one that has it."""
        return current_site(self.settings.home)


class ApiRoute(NamedTuple):
    """An operation of the interface."""

    method: str
    path: str
    """As in the OpenAPI document, below the address of the interface."""
    needs: Role
    action: str
    """Its name in the audit of a refusal."""
    do: Callable[[ApiRequest], tuple[int, dict[str, Any]]]

    @property
    def pattern(self) -> str:
        """The pattern of its address."""
        named = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path)
        return f"^{API}{named}$"


def _plan(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    project = load_project(request.site.root)
    name = request.path["experiment"]
    if name not in project.experiments:
        raise ApiError(404, "not_found", f"there is no experiment {name!r}")
    start_plan, instead = StartPlan(project, name, offline=request.offline), None
    if start_plan.dispatch_to is not None:
        repository = start_plan.dispatch_to.repository
        instead = {"repository": repository, "workflow_url": start_plan.workflow_url}
    limit = start_plan.limit_microusd
    return 200, {**plan_json(start_plan.plan), "budget_microusd": limit, "dispatch": instead}


def _start(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    if not request.key:
        raise ApiError(
            400, "key_missing", "the header Idempotency-Key is missing", "send a new one each time"
        )
    start = Start(
        experiment=request.path["experiment"],
        plan_hash=text_field(request.body, "plan_hash"),
        key=request.key,
        trigger="api",
        budget_microusd=_budget(request.body),
    )
    refuse_unknown(request.body, {"plan_hash", "budget_usd"})
    begun = start_run(request.site, request.actor, start, offline=request.offline)
    if begun.workflow_url is None:
        return 201, _state(request.site, begun.run_id)
    return 202, {
        "request": begun.run_id,
        "experiment": begun.experiment,
        "workflow_url": begun.workflow_url,
        "asked_at": begun.asked_at,
        "accepted_at": begun.accepted_at,
    }


def _status(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    return 200, _state(request.site, _run(request).id)


def _pause(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    return _stop(request, "pause")


def _cancel(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    return _stop(request, "cancel")


def _stop(request: ApiRequest, what: str) -> tuple[int, dict[str, Any]]:
    run = _run(request)
    refuse_unknown(request.body, set())
    RunControl(request.site, request.actor).stop(run, what)
    return 202, _state(request.site, run.id)


def _resume(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    run = _run(request)
    refuse_unknown(request.body, {"budget_usd"})
    resume_run(request.site, request.actor, run, _budget(request.body))
    return 202, _state(request.site, run.id)


def _steer(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    run, change = _run(request), _change(request.body)
    (answer,) = RunControl(request.site, request.actor).steer(run, [change])
    if not answer.done:
        raise ApiError(409, "refused", answer.said)
    return 200, {**_state(request.site, run.id), "answer": answer.as_json()}


def _document(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    del request
    whole, served = document(), {route.path for route in routes()}
    paths = {path: about for path, about in whole["paths"].items() if path in served}
    return 200, {**whole, "paths": paths}


_USUAL_ROWS = 50


def page_size(request: ApiRequest) -> int:
    """Return how many rows a page has; raises ApiError."""
    least, most = ranges.PAGE_ROWS
    text = request.query.get("limit", str(_USUAL_ROWS))
    if not (text.isascii() and text.isdigit() and least <= int(text[:9]) <= most):
        raise ApiError(400, "invalid", f"limit is a whole number from {least} to {most}")
    return int(text)


def _runs(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    """Return runs, the newest first; trials of suggestions are left out."""
    query, most = request.query, page_size(request)
    refuse_unknown(query, {"experiment", "status", "after", "limit"})
    status = query.get("status", "").upper()
    wanted = RunPage(query.get("experiment", ""), status, query.get("after", ""), most + 1)
    with live_runs(request.site) as stored:
        try:
            runs = runs_page(stored.connection, wanted)
        except UsageError as error:
            raise ApiError(404, "not_found", error.message, error.hint) from None
        rows = [
            _run_row(RunResult(stored.connection, current_run(stored.locks, run)))
            for run in runs[:most]
        ]
    return 200, {"runs": rows, "next": rows[-1]["run_id"] if len(runs) > most else None}


def _run_row(result: RunResult) -> dict[str, Any]:
    run = result.run
    return {
        "run_id": run.id,
        "experiment": run.experiment,
        "trigger": run.trigger,
        "status": run.status,
        "verdict": run.verdict,
        "stopped_by": run.stopped_by,
        "moving": run.moving,
        "simulated": run.simulated,
        "partial": run.partial,
        "composite": interval_json(result.overall.composite),
        "pass_rate": interval_json(result.overall.pass_rate),
        "cost_microusd": result.cost_microusd,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
    }


def _results(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    """Return the cells of a run: each case with each prompt and model, by the name of the case."""
    query, most = request.query, page_size(request)
    refuse_unknown(query, {"status", "after", "limit"})
    with live_runs(request.site) as stored:
        try:
            run = stored.find(request.path["run"])
            wanted = CellPage(run.id, query.get("status", ""), query.get("after", ""), most + 1)
            cells = cells_page(stored.connection, wanted)
        except UsageError as error:
            raise ApiError(404, "not_found", error.message, error.hint) from None
    rows = [cell.as_json() for cell in cells[:most]]
    return 200, {
        "run_id": run.id,
        "results": rows,
        "next": rows[-1]["cell"] if len(cells) > most else None,
    }


ROUTES = (
    ApiRoute("GET", "/runs", Role.VIEWER, "list runs", _runs),
    ApiRoute("GET", "/runs/{run}/results", Role.VIEWER, "list results", _results),
    ApiRoute("GET", "/experiments/{experiment}/plan", Role.VIEWER, "plan", _plan),
    ApiRoute("POST", "/experiments/{experiment}/runs", Role.EDITOR, "start run", _start),
    ApiRoute("GET", "/runs/{run}", Role.VIEWER, "status", _status),
    ApiRoute("POST", "/runs/{run}/pause", Role.EDITOR, "pause run", _pause),
    ApiRoute("POST", "/runs/{run}/resume", Role.EDITOR, "resume run", _resume),
    ApiRoute("POST", "/runs/{run}/cancel", Role.EDITOR, "cancel run", _cancel),
    ApiRoute("POST", "/runs/{run}/steer", Role.EDITOR, "steer", _steer),
    ApiRoute("GET", "/openapi.json", Role.VIEWER, "openapi", _document),
)
"""Operations of the core."""


def routes() -> tuple[ApiRoute, ...]:
    """Return every operation; the OpenAPI document describes each."""
    return (*ROUTES, *(route for made in feature.hooks("api_routes") for route in made()))


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of every operation, those of features too."""
    whole: dict[str, Any] = json.loads((resource_folder("schemas") / "openapi.json").read_bytes())
    return whole


def _run(request: ApiRequest) -> Run:
    with live_runs(request.site) as runs:
        try:
            return runs.find(request.path["run"])
        except UsageError as error:
            raise ApiError(404, "not_found", error.message, error.hint) from None


def _state(site: Site, run_id: str) -> dict[str, Any]:
    with live_runs(site) as runs:
        run = runs.current(run_id)
        return {
            "run_id": run.id,
            "experiment": run.experiment,
            "status": run.status,
            "verdict": run.verdict,
            "stopped_by": run.stopped_by,
            "moving": run.moving,
            "created_at": run.created_at,
            "finished_at": run.finished_at,
            **steering_state(runs.connection, run).as_json(),
        }


def refuse_unknown(body: Mapping[str, Any], fields: set[str]) -> None:
    """Raise ApiError for a field that the operation does not have."""
    unknown = sorted(set(body) - fields)
    if unknown:
        hint = f"it may have {', '.join(sorted(fields))}" if fields else "it takes no fields"
        raise ApiError(400, "invalid", f"the request has an unknown field {unknown[0]!r}", hint)


def text_field(body: Mapping[str, Any], name: str) -> str:
    """Return a text of the body; raises ApiError."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ApiError(400, "invalid", f"the field {name!r} is missing or is not text")
    return value


def _budget(body: Mapping[str, Any]) -> int | None:
    value = body.get("budget_usd")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(400, "invalid", "budget_usd is not a number")
    return budget_microusd(value)


def amount_field(body: Mapping[str, Any], name: str) -> int:
    """Return an amount of the body in micro-dollars; raises ApiError."""
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_MICROUSD:
        message = f"the field {name!r} is missing, or no whole number of micro-dollars"
        raise ApiError(400, "invalid", message)
    return value


_FIELDS_OF_ACTION = {
    "concurrency": {"model", "calls"},
    "pause": {"model"},
    "resume": {"model"},
    "requeue": set[str](),
    "budget": {"budget_usd"},
}


def _change(body: Mapping[str, Any]) -> Change:
    action = body.get("action")
    if not isinstance(action, str) or action not in _FIELDS_OF_ACTION:
        raise ApiError(400, "invalid", f"action is one of {', '.join(_FIELDS_OF_ACTION)}")
    fields = _FIELDS_OF_ACTION[action]
    refuse_unknown(body, {"action", *fields})
    budget = _budget(body) if "budget_usd" in fields else None
    if "budget_usd" in fields and budget is None:
        raise ApiError(400, "invalid", "the field 'budget_usd' is missing")
    model = text_field(body, "model") if "model" in fields else ""
    calls = body.get("calls")
    if "calls" in fields and (not isinstance(calls, int) or isinstance(calls, bool)):
        raise ApiError(400, "invalid", "the field 'calls' is missing or is not a whole number")
    return steering_change(action, model, calls, budget)


def api_routes() -> list[tuple[str, Callable[..., Awaitable[Any]]]]:
    """Return the patterns of the interface with their views; one address may have two methods."""
    views = [(route.pattern, _view(route)) for route in routes()]
    return [*views, (f"^{API}/.*$", _unknown)]


def _view(route: ApiRoute) -> Callable[..., Awaitable[Any]]:
    async def view(datasette: Any, request: Any) -> Any:
        try:
            if request.method != route.method:
                message = f"use {route.method}"
                raise ApiError(405, "method", message)
            authorized = await _authorized(datasette, request, route)
            status, value = await asyncio.to_thread(route.do, authorized)
        except EdisonError as error:
            return error_reply(error)
        return json_reply(status, value)

    return view


async def _unknown(request: Any) -> Any:
    del request
    return error_reply(ApiError(404, "not_found", "there is no such operation", "see openapi.json"))


async def _authorized(datasette: Any, request: Any, route: ApiRoute) -> ApiRequest:
    entity = ", ".join(request.url_vars.values())
    site, actor = await authorize(datasette, request, route.needs, route.action, entity)
    settings = settings_of(datasette)
    assert settings is not None, "who is authorized asked a server"
    body = await _body(request) if route.method == "POST" else {}
    key = header(request.scope, b"idempotency-key").strip()
    # A key belongs to a member: another one cannot learn of a run by guessing it.
    key = f"{actor.name}:{key}" if key else ""
    query = {name: request.args.getlist(name)[-1] for name in request.args}
    return ApiRequest(site, actor, request.url_vars, body, key, settings, query)


async def authorize(
    datasette: Any, request: Any, needs: Role, action: str, entity: str = ""
) -> tuple[Site, Actor]:
    """Return the project and the member of a token, if their role is sufficient."""
    settings = settings_of(datasette)
    if settings is None or settings.actions is None:
        raise ApiError(403, "read_only", "these pages are read-only", "use edison serve")
    if not header(request.scope, b"authorization"):
        raise ApiError(401, "token", "a token is missing", "send it as Authorization: Bearer TOKEN")
    actor = await authenticate(settings, request.scope)
    if actor is None:
        raise ApiError(
            401, "token", "the token is not valid", "make a new one: edison roles token NAME"
        )
    if actor.role is None:
        raise ApiError(404, "not_found", "there is no such project, or it is not for you")
    wait_s = _limit.wait_s(caller_key(settings, request.scope, actor))
    if wait_s:
        raise ApiError(429, "rate", f"more than {PER_MINUTE} requests a minute", f"wait {wait_s} s")
    site = await asyncio.to_thread(current_site, settings.root)
    await asyncio.to_thread(site.admit, actor, needs, action, entity)
    return site, actor


async def _body(request: Any) -> dict[str, Any]:
    sent = await request.post_body()
    if len(sent) > MOST_BYTES:
        raise ApiError(413, "too_large", f"the body has more than {MOST_BYTES:,} bytes")
    if not sent:
        return {}
    try:
        value = json.loads(sent)
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid", "the body is not JSON") from None
    if not isinstance(value, dict):
        raise ApiError(400, "invalid", "the body is not a JSON object")
    return value


def error_reply(error: EdisonError) -> Any:
    """Return an error as JSON."""
    status = 400
    if isinstance(error, ApiError):
        status = error.status
    elif isinstance(error, RoleError):
        status = 403
    elif isinstance(error, BusyError | PlanChanged | CannotStart):
        status = 409
    elif isinstance(error, DispatchUnknown):
        status = 502
    elif error.exit_code == ExitCode.NOT_MEASURED:
        status = 503
    code = error.own_code if isinstance(error, ApiError) else error.code
    body = {"code": code, "message": error.message, "hint": error.hint or ""}
    body |= error.more if isinstance(error, ApiError) else {}
    body |= error_mark()._asdict()
    return json_reply(status, {"error": body})


def json_reply(status: int, value: dict[str, Any]) -> Any:
    """Return a value as JSON that is not cached."""
    headers = {**PAGE_HEADERS, "cache-control": "private, no-store"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body = f"{json_text(value)}\n"
    kind = "application/json; charset=utf-8"
    return Response(body, status=status, content_type=kind, headers=headers)
