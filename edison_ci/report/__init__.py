"""Reports of runs: Markdown, HTML, JSON, JUnit, SARIF, CSV, pull-request comments and charts."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
