"""Providers: adapters to models, and the client around each: cache, retries, limits, budget."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
