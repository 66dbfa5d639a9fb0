"""GitHub: comments on pull requests, annotations, checks of roles, sign-in and workflows."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "github": Command(
            "Set up", "commands:github", "Report on a pull request from a GitHub Actions job."
        ),
        "github annotations": Command(
            "Commands",
            "commands:show_annotations",
            "Print annotations on the lines that a change touched.",
            "runs",
        ),
        "github approvals": Command(
            "Commands",
            "approvals_command:approvals",
            "Check that enough people have approved a pull request.",
        ),
        "github comment": Command(
            "Commands",
            "comment_command:comment",
            "Post a report as a comment on a pull request, or update it.",
            "runs",
        ),
        "github event": Command(
            "Commands", "commands:event", "Show the event of this job, its mode, and what changed."
        ),
        "github run": Command(
            "Commands",
            "run_command:run_job",
            "Evaluate the experiments that a change affects, and report on them.",
            "experiments",
        ),
        "github summary": Command(
            "Commands",
            "commands:show_summary",
            "Write the job summary and the outputs of the step.",
            "runs",
        ),
        "roles check": Command(
            "Commands",
            "roles_commands:check",
            "Compare members with CODEOWNERS and the protected branch.",
        ),
        "roles sync": Command(
            "Commands",
            "roles_commands:sync",
            "Write CODEOWNERS from the members, and say how to protect the branch.",
        ),
    },
    forges={"github": "forge:GitHub"},
    hooks={
        "comment_data": "comment_command:comment_data",
        "start_workflow": "dispatch:dispatch",
        "tell_issue": "issues:tell_issue",
    },
)
