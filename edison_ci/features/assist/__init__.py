"""Drafts that a model writes and a person accepts: projects, rubrics, prompts and cases."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "assist": Command(
            "Set up",
            "commands:assist",
            "Draft an objective, a rubric, prompts or settings, for you to accept.",
        ),
        "dataset adversarial": Command(
            "Commands",
            "case_commands:adversarial",
            "Have models write cases that the prompt is likely to fail on.",
            "experiments",
        ),
        "dataset coverage": Command(
            "Commands",
            "case_commands:coverage",
            "Show which tags, lengths, languages and difficulties the cases cover.",
            "experiments",
        ),
        "dataset fill": Command(
            "Commands",
            "case_commands:fill",
            "Have models write cases for what the dataset does not cover.",
            "experiments",
        ),
        "dataset generate": Command(
            "Commands",
            "case_commands:generate",
            "Have models write cases for an experiment, for you to accept.",
            "experiments",
        ),
        "dataset verify": Command(
            "Commands",
            "verify_command:verify_cases",
            "Agree with expected answers that models wrote.",
            "experiments",
        ),
    },
    hooks={"wizard": "wizard:Wizard"},
)
