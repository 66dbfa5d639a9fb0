"""Human review: grading answers, editing prompts, and deciding and syncing suggestions."""

from edison_ci.deferred import submodules
from edison_ci.feature import Area, Command, Feature, FormEntry, PageEntry

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
    tables=("suggestion_approval", "suggestion_comment"),
    areas=(Area("suggestions", "Suggestions", ("suggestions",), 30),),
    pages=(
        PageEntry("/run/{run}/grade", "grading_page:grading"),
        PageEntry("/cell/{cell}/counterexample", "cell_pages:counterexample"),
        PageEntry("/cell/{cell}/reply", "cell_pages:reply"),
        PageEntry("/prompt/{prompt}/edit", "prompt_editor:edit"),
        PageEntry("/prompt/{prompt}/save", "prompt_editor:save"),
        PageEntry("/suggestions", "suggestion_pages:suggestions"),
        PageEntry("/suggestion/{suggestion}", "suggestion_pages:suggestion"),
        PageEntry("/suggestion/{suggestion}/edit", "suggestion_pages:edit"),
    ),
    forms=(
        FormEntry("/cell/{cell}/rerun", "editor", "rerun", "forms:rerun"),
        FormEntry("/cell/{cell}/grade", "reviewer", "grade", "forms:grade"),
        FormEntry("/cell/{cell}/flag", "reviewer", "grade", "forms:flag"),
        FormEntry(
            "/suggestion/{suggestion}/approve", "reviewer", "review approve", "forms:approve"
        ),
        FormEntry("/suggestion/{suggestion}/reject", "reviewer", "review reject", "forms:reject"),
        FormEntry(
            "/suggestion/{suggestion}/comment", "reviewer", "review comment", "forms:comment"
        ),
        FormEntry(
            "/suggestion/{suggestion}/edited",
            "editor",
            "review edit",
            "forms:edit",
            long=True,
        ),
        FormEntry("/suggestion/{suggestion}/by-hunk", "editor", "compare by hunk", "forms:by_hunk"),
        FormEntry("/cell/{cell}/add-case", "editor", "add case", "forms:add_case", long=True),
        FormEntry("/prompt/{prompt}/count", "editor", "edit prompt", "forms:count", long=True),
        FormEntry("/prompt/{prompt}/draft", "editor", "edit prompt", "forms:draft", long=True),
        FormEntry("/prompt/{prompt}/resume", "editor", "edit prompt", "forms:resume", long=True),
        FormEntry("/prompt/{prompt}/try", "editor", "try", "forms:try_", long=True),
        FormEntry("/prompt/{prompt}/propose", "editor", "edit prompt", "forms:propose", long=True),
    ),
    hooks={
        "cell_actions": "cell_pages:cell_actions",
        "own_grade": "grading_page:own_grade",
        "may_edit_prompts": "prompt_editor:may_edit",
    },
)
