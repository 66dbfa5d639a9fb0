"""The simulator: models that only simulate, and are labelled so, to try everything offline."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "demo": Command(
            "Set up",
            "demo_command:demo",
            "Show the whole workflow in a temporary project, offline.",
        ),
    },
    providers={"sim": "provider:simulated_model"},
)
