"""OpenTelemetry: spans and metrics of runs, cells and calls, where an exporter is configured."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
