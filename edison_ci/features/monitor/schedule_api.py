"""The schedules of a project in the HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.access.site import Role
from edison_ci.features.monitor.schedules import schedule_overview, scheduler_status
from edison_ci.web.api import ApiError, ApiRoute, page_size, refuse_unknown

if TYPE_CHECKING:
    from edison_ci.web.api import ApiRequest


def api_routes() -> tuple[ApiRoute, ...]:
    """Return the operations."""
    return (ApiRoute("GET", "/schedules", Role.VIEWER, "list schedules", _schedules),)


def _schedules(request: ApiRequest) -> tuple[int, dict[str, Any]]:
    """Return the schedules of all experiments, with their last and next times, by name."""
    refuse_unknown(request.query, {"experiment", "after", "limit"})
    site, most, query = request.site, page_size(request), request.query
    overview = schedule_overview(site)
    by_name = {
        status.schedule.full_name: status
        for status in sorted(overview.schedules, key=lambda status: status.schedule.full_name)
        if query.get("experiment", "") in ("", status.schedule.experiment)
    }
    after = query.get("after", "")
    if after and after not in by_name:
        message = f"there is no schedule {after!r}"
        raise ApiError(404, "not_found", message, "begin again without after")
    names = [name for name in by_name if name > after]
    scheduler = scheduler_status(site, [status.schedule for status in overview.schedules])
    return 200, {
        "schedules": [by_name[name].as_json(site.clock()) for name in names[:most]],
        "scheduler": {"running": scheduler.running, "text": scheduler.sentence},
        "next": names[most - 1] if len(names) > most else None,
    }
