"""Monitoring: schedules, alerts, notifications, samples of production, and metrics."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "schedule": Command(
            "Runs", "schedule_commands:schedule", "List, edit and carry out schedules of runs."
        ),
        "alerts": Command(
            "Results",
            "alert_commands:alerts",
            "Check for falls, errors and other conditions that need attention.",
        ),
        "notifications": Command(
            "Results", "notification_commands:notifications", "List, test and send notifications."
        ),
        "admin metrics": Command(
            "Results",
            "metrics_command:metrics",
            "Print metrics for Prometheus, as the pages serve them.",
        ),
        "import production": Command(
            "Commands",
            "production_command:production",
            "Grade a sample of what production answered.",
            "experiments",
        ),
    },
    hooks={
        "command_ended": "notification_commands:deliver_briefly",
        "duties": "duties:duties_of",
        "notice": "notifications:notify",
        "run_context": "run_handlers:changes_of_context",
        "runs_ended": "alert_notes:check_after_run",
        "scheduled_run": "production_sample:grade_new_sample",
    },
)
