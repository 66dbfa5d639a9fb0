"""Forms of the page of schedules: enable and disable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.features.monitor.schedules import enable_schedule, find_schedule, read_schedules
from edison_ci.web.cache import store_messages

if TYPE_CHECKING:
    from edison_ci.web.forms import FormRequest


def enable(sent: FormRequest) -> str:
    """Enable a schedule in its file."""
    return _switch(sent, to=True)


def disable(sent: FormRequest) -> str:
    """Disable a schedule in its file."""
    return _switch(sent, to=False)


def _switch(sent: FormRequest, *, to: bool) -> str:
    found = find_schedule(read_schedules(sent.site), sent.path["experiment"], sent.path["name"])
    enable_schedule(sent.site, found, to=to, actor=sent.actor)
    word = "enabled" if to else "disabled"
    said = f"{found.full_name} is {word} in {found.path}. Commit the file to keep it so."
    return sent.links.to("schedules", messages=store_messages((said,)))
