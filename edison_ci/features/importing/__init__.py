"""Importers: configurations of other tools as files of a project, with a report on each key."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "import": Command(
            "Set up", "commands:import_", "Import files of other tools, answers, traces or bundles."
        ),
        "dataset import": Command(
            "Commands",
            "dataset_command:import_cases",
            "Import rows of a CSV, JSON, JSONL or YAML file as cases.",
        ),
    },
    hooks={
        "cases_of_file": "dataset_command:cases_of_file",
    },
)
