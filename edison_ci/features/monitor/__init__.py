"""Monitoring: schedules, alerts, notifications, samples of production, and metrics."""

from edison_ci.deferred import submodules
from edison_ci.feature import Area, Command, Feature, FormEntry, PageEntry

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
    keys=("experiment.alerts", "experiment.production", "experiment.schedule"),
    tables=(
        *("alert", "alert_mute", "notification"),
        *("schedule_fire", "schedule_watch", "scheduler"),
    ),
    hooks={
        "alert_marks": "alert_page:alert_marks",
        "alerts": "alert_page:banner",
        "api_routes": "schedule_api:api_routes",
        "command_ended": "notification_commands:deliver_briefly",
        "duties": "duties:duties_of",
        "mail": "mail:mail_person",
        "notice": "notifications:notify",
        "production_sample": "production_trend:newest_sample",
        "production_trend": "production_trend:production_trend",
        "run_context": "run_handlers:changes_of_context",
        "runs_ended": "run_handlers:check_after_run",
        "scheduled_run": "production_runs:grade_new_sample",
    },
    areas=(
        Area("alerts", "Alerts", ("alerts",), 80),
        Area("schedules", "Schedules", ("schedules",), 90),
    ),
    pages=(
        PageEntry("/alerts", "alert_page:alerts"),
        PageEntry("/schedules", "schedule_page:schedules"),
        PageEntry("/health", "health_page:health", any_version=True, open=True),
        PageEntry("/ready", "health_page:ready", any_version=True, open=True),
        PageEntry("/metrics", "health_page:metrics"),
    ),
    forms=(
        FormEntry("/alert/{alert}/ack", "reviewer", "alerts ack", "alert_page:ack"),
        FormEntry(
            "/schedule/{experiment}/{name}/enable",
            "editor",
            "schedule enable",
            "schedule_page:enable",
        ),
        FormEntry(
            "/schedule/{experiment}/{name}/disable",
            "editor",
            "schedule disable",
            "schedule_page:disable",
        ),
        FormEntry("/alert/{alert}/mute", "editor", "alerts mute", "alert_page:mute_alert"),
    ),
)
