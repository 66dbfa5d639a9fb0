"""Clusters: runs whose calls are made by workers on other machines, connected by Dask."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "worker": Command(
            "Team",
            "commands:worker",
            "Make calls for runs of other machines, and connect the machines.",
        ),
    },
    executors={"": "local_workers:workers_at"},
)
