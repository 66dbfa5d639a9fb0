"""Datasets: their statistics, health and edits, and judges of their questions."""

from edison_ci.deferred import submodules
from edison_ci.feature import Area, Command, Feature, PageEntry

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "dataset": Command(
            "Set up", "commands:dataset", "Show, count, check and change the cases of a dataset."
        ),
        "dataset add": Command(
            "Commands",
            "edit_commands:add",
            "Add a case to a dataset, from values or from an answer.",
            "experiments",
        ),
        "dataset edit": Command(
            "Commands", "edit_commands:edit", "Edit a case, by options or in $EDITOR.", "cases"
        ),
        "dataset health": Command(
            "Commands",
            "commands:health",
            "Find duplicate, contradictory, flaky, weak and useless cases.",
            "experiments",
        ),
        "dataset judge": Command(
            "Commands",
            "judge_command:judge",
            "Rate the quality of the questions with judges.",
            "experiments",
        ),
        "dataset remove": Command(
            "Commands", "edit_commands:remove", "Remove cases from their dataset.", "cases"
        ),
        "dataset show": Command(
            "Commands", "commands:show", "Show the first cases of an experiment.", "experiments"
        ),
        "dataset stats": Command(
            "Commands",
            "commands:stats",
            "Count the cases by tag, difficulty, kind and length.",
            "experiments",
        ),
        "dataset tag": Command(
            "Commands",
            "edit_commands:tag",
            "Tag the cases of an experiment, all or some of them.",
            "experiments",
        ),
    },
    tables=("question_score",),
    areas=(Area("datasets", "Datasets", ("datasets",), 50),),
    pages=(
        PageEntry("/datasets", "pages:datasets"),
        PageEntry("/dataset/{experiment}", "pages:dataset"),
    ),
)
