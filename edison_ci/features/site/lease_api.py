"""The budget that machines share, in the HTTP interface of a site."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from edison_ci.access.site import Actor, Role, role_in
from edison_ci.features.site.lease_rows import LeaseFile, LeaseRefusal, LeaseRequest
from edison_ci.features.site.shared_budget import LEASES_FILE, monthly_limits
from edison_ci.web.api import ApiError, ApiRoute, amount_field, refuse_unknown, text_field

if TYPE_CHECKING:
    from edison_ci.features.site.lease_rows import Lease
    from edison_ci.web.api import ApiRequest

_LEASE = re.compile(r"[0-9a-f]{32}")
_LONGEST_NAME = 100


def api_routes() -> tuple[ApiRoute, ...]:
    """Return the operations."""
    return (
        ApiRoute("GET", "/budget", Role.VIEWER, "shared budget", _budget_state),
        ApiRoute("POST", "/budget/leases/{lease}", Role.EDITOR, "lease", _lend),
        ApiRoute("POST", "/budget/leases/{lease}/return", Role.EDITOR, "return lease", _take_back),
    )


def _budget_state(asked: ApiRequest) -> tuple[int, dict[str, Any]]:
    home = asked.home()
    month, leases = f"{home.clock():%Y-%m}", LeaseFile(home.root / LEASES_FILE)
    limits = [
        {
            "name": limit.name,
            "scope": limit.scope,
            "of": limit.of,
            "limit_microusd": limit.microusd,
            "used_microusd": leases.used(limit, month),
        }
        for limit in monthly_limits(home.file.limits)
    ]
    return 200, {"month": month, "limits": limits}


def _lend(asked: ApiRequest) -> tuple[int, dict[str, Any]]:
    request, home = _lease_request(asked, amount_field(asked.body, "needs_microusd")), asked.home()
    limits, now = monthly_limits(home.file.limits), home.clock()
    if not limits:
        hint = "add limits to its edison.yaml, such as monthly_usd"
        raise ApiError(409, "no_limits", "this site has no budget to share", hint)
    lease = LeaseFile(home.root / LEASES_FILE).lend(request, limits, now)
    return 200, _lease_json(lease, now)


def _take_back(asked: ApiRequest) -> tuple[int, dict[str, Any]]:
    request, home = _lease_request(asked), asked.home()
    lease = LeaseFile(home.root / LEASES_FILE).take_back(request, home.clock())
    return 200, _lease_json(lease, home.clock())


def _lease_request(asked: ApiRequest, needs: int | None = None) -> LeaseRequest:
    keys = {"project", "team", "spent_microusd"}
    refuse_unknown(asked.body, keys if needs is None else {*keys, "needs_microusd"})
    project, team = text_field(asked.body, "project"), asked.body.get("team", "")
    if not isinstance(team, str) or max(len(team), len(project)) > _LONGEST_NAME:
        raise ApiError(400, "invalid", f"project and team have at most {_LONGEST_NAME} characters")
    if not _LEASE.fullmatch(asked.path["lease"]):
        raise ApiError(400, "invalid", "a lease is named by 32 hexadecimal digits")
    names = (asked.path["lease"], project, _team_of(asked, project, team), asked.actor.name)
    return LeaseRequest(*names, amount_field(asked.body, "spent_microusd"), needs or 0)


def _team_of(asked: ApiRequest, project: str, claimed: str) -> str:
    """Return the team of a project: that of its file at the site, else the one it claims."""
    projects, home = asked.settings.projects, asked.home()
    if asked.settings.home != asked.site.root and project != asked.site.file.slug:
        raise ApiError(400, "invalid", f"this is the address of {asked.site.file.slug}")
    own_project = projects.find(project) if projects is not None else None
    if own_project is None:
        return claimed
    identity = asked.actor.identity
    actor = Actor(identity, role_in(home, own_project.site, identity))
    home.admit(actor, Role.EDITOR, "lease", project)
    return own_project.site.file.team or ""


def _lease_json(lease: Lease | LeaseRefusal, now: dt.datetime) -> dict[str, Any]:
    if isinstance(lease, LeaseRefusal):
        status = 404 if lease.code == "unknown" else 409
        raise ApiError(status, lease.code, lease.message, limit=lease.limit)
    left = dt.datetime.fromisoformat(lease.expires_at) - now
    return {
        "lease": lease.id,
        "month": lease.month,
        "granted_microusd": lease.granted_microusd,
        "spent_microusd": lease.spent_microusd,
        "expires_in_s": max(int(left.total_seconds()), 0),
        "returned": lease.returned_at is not None,
    }
