"""Forms of the page of alerts: acknowledge, mute, and end a mute."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.features.monitor.alert_page import MUTES
from edison_ci.features.monitor.alerts import acknowledge, mute, mute_target, unmute
from edison_ci.web.cache import store_messages

if TYPE_CHECKING:
    from edison_ci.web.forms import FormRequest

_MOST_NOTE = 500


def ack(sent: FormRequest) -> str:
    """Acknowledge an alert."""
    note = sent.form.text("note")
    if len(note) > _MOST_NOTE:
        raise UsageError(f"a note has at most {_MOST_NOTE} characters", hint="shorten it")
    (alert,) = acknowledge(sent.site, [int(sent.path["alert"])], note, actor=sent.actor)
    return _back(sent, f"Alert {alert.id} is yours. It stays open until its condition ends.")


def mute_alert(sent: FormRequest) -> str:
    """Mute the condition of an alert for a time, or end that."""
    target = mute_target(sent.site, int(sent.path["alert"]))
    hours = sent.form.text("hours")
    if hours == "0":
        unmute(sent.site, target, actor=sent.actor)
        return _back(sent, f"No longer muted: {target.words}.")
    if hours not in MUTES:
        raise UsageError("this is no time to mute for", hint="go back and choose one")
    made = mute(sent.site, target, dt.timedelta(hours=int(hours)), actor=sent.actor)
    until = made.until[:16].replace("T", " ")
    return _back(sent, f"Nobody is told of {target.words} until {until} UTC.")


def _back(sent: FormRequest, text: str) -> str:
    return sent.links.to("alerts", messages=store_messages((text,)))
