"""Clusters: runs whose calls are made by workers on other machines, connected by Dask."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
