"""Human review: grading answers, editing prompts, and deciding and syncing suggestions."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "grade": Command("Grades", "grade_command:grade", "Grade answers by hand.", "runs"),
        "review": Command("Improve", "commands:review", "Review suggested prompt changes."),
        "propose": Command(
            "Improve", "commands:propose", "Push a suggestion to a branch and open a pull request."
        ),
    },
)
