"""Monitoring: schedules, alerts, notifications, samples of production, and metrics."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
