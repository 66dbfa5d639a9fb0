"""Text files read as values with line and column: YAML, JSON, CSV, and edits of them."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
