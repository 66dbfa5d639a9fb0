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
    areas=(Area("suggestions", "Suggestions", ("suggestions",), 30),),
    pages=(
        PageEntry("/run/{run}/grade", "grading_page:grading"),
        PageEntry("/cell/{cell}/counterexample", "counterexample_page:counterexample"),
        PageEntry("/cell/{cell}/reply", "cell_actions:reply"),
        PageEntry("/prompt/{prompt}/edit", "prompt_editor:edit"),
        PageEntry("/prompt/{prompt}/save", "prompt_editor:save"),
        PageEntry("/suggestions", "suggestion_pages:suggestions"),
        PageEntry("/suggestion/{suggestion}", "suggestion_pages:suggestion"),
        PageEntry("/suggestion/{suggestion}/edit", "suggestion_pages:edit"),
    ),
    forms=(
        FormEntry("/cell/{cell}/rerun", "editor", "rerun", "review_forms:rerun"),
        FormEntry("/cell/{cell}/grade", "reviewer", "grade", "review_forms:grade"),
        FormEntry("/cell/{cell}/flag", "reviewer", "grade", "review_forms:flag"),
        FormEntry(
            "/suggestion/{suggestion}/approve", "reviewer", "review approve", "review_forms:approve"
        ),
        FormEntry(
            "/suggestion/{suggestion}/reject", "reviewer", "review reject", "review_forms:reject"
        ),
        FormEntry(
            "/suggestion/{suggestion}/comment", "reviewer", "review comment", "review_forms:comment"
        ),
        FormEntry(
            "/suggestion/{suggestion}/edited",
            "editor",
            "review edit",
            "review_forms:edit",
            long=True,
        ),
        FormEntry(
            "/suggestion/{suggestion}/by-hunk", "editor", "compare by hunk", "review_forms:by_hunk"
        ),
        FormEntry(
            "/cell/{cell}/add-case", "editor", "add case", "prompt_forms:add_case", long=True
        ),
        FormEntry(
            "/prompt/{prompt}/count", "editor", "edit prompt", "prompt_forms:count", long=True
        ),
        FormEntry(
            "/prompt/{prompt}/draft", "editor", "edit prompt", "prompt_forms:draft", long=True
        ),
        FormEntry(
            "/prompt/{prompt}/resume", "editor", "edit prompt", "prompt_forms:resume", long=True
        ),
        FormEntry("/prompt/{prompt}/try", "editor", "try", "prompt_forms:try_", long=True),
        FormEntry(
            "/prompt/{prompt}/propose", "editor", "edit prompt", "prompt_forms:propose", long=True
        ),
    ),
    hooks={
        "cell_actions": "cell_actions:cell_actions",
        "own_grade": "grading_page:own_grade",
        "may_edit_prompts": "prompt_editor:may_edit",
    },
)
