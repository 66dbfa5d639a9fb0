"""Upkeep of the results file: retention, forgetting, backups, and bundles of whole projects."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "admin db": Command(
            "Results", "commands:db", "Check, back up, restore and sign the results file."
        ),
        "admin cache": Command(
            "Results", "commands:cache", "Show, clear or export stored answers."
        ),
        "admin gc": Command("Results", "commands:gc", "Delete texts older than retention_days."),
        "admin forget": Command(
            "Results", "forget_command:forget_texts", "Remove the texts of a case or of a person."
        ),
        "admin bundle": Command(
            "Results", "commands:bundle", "Bundle a whole project, or restore one."
        ),
    },
    hooks={"duties": "maintenance:duties_of"},
)
