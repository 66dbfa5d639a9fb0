"""Duties of a server: the check for alerts, and the delivery of notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.api.duties import DAY_S, Duty
from edison_ci.features.monitor.alert_check import CheckResult, check_alerts
from edison_ci.features.monitor.notifications import deliver
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.access.site import Site

_ALERTS_S = 300
_DELIVER_S = 60


def duties_of(site: Site) -> Iterator[Duty]:
    """Yield the duties of a project, as its settings have them."""
    yield Duty("alerts", _ALERTS_S, _check_alerts)
    yield Duty("all alerts", DAY_S, _check_all_alerts)
    if site.file.notifications:
        yield Duty("notifications", _DELIVER_S, _deliver)


def _check_alerts(site: Site) -> str:
    return _changed(check_alerts(site, thorough=False))


def _check_all_alerts(site: Site) -> str:
    return _changed(check_alerts(site))


def _changed(done: CheckResult) -> str:
    return f"{counted(len(done.opened), 'alert')} opened, {len(done.closed):,} closed"


def _deliver(site: Site) -> str:
    delivery = deliver(site)
    failed = f", {len(delivery.problems):,} not accepted" if delivery.problems else ""
    return f"{delivery.sent:,} sent{failed}"
