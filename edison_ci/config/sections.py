"""Sections that few projects have: notifications, what machines share, schedules, production.

Their models are loaded when a file has one of them (`shape.section`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from edison_ci.config import cron as config_cron
from edison_ci.config.project import Dollars, MonthlyDollars
from edison_ci.shape import (
    UNIQUE,
    Email,
    EnvName,
    FilePath,
    Name,
    Shape,
    TextPattern,
    VariableName,
    items,
    need_one_of,
    one_of_keys,
    short,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Smtp(Shape):
    """A mail server."""

    host_env: EnvName = Field(
        description="Variable with host:port; port 587 or 25 with STARTTLS, 465 with TLS."
    )
    sender: Email = Field(alias="from", description="Sender address.")
    to: Annotated[tuple[Email, ...], items(1, 50), UNIQUE] = Field(description="Recipients.")
    user_env: EnvName | None = Field(None, description="Variable with the user name.")
    password_env: EnvName | None = Field(None, description="Variable with the password.")
    starttls: bool = Field(
        True, description="Whether to refuse a server without TLS; loopback needs none."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of half a sign-in, and of a password without TLS."""
        if (self.user_env is None) != (self.password_env is None):
            names = ["user_env", "password_env"]
            present, other = names if self.password_env is None else reversed(names)
            message = f"smtp has {present} and no {other}"
            yield wrong("notification", message, f"add {other}, or remove {present}", at=(present,))
        if self.password_env is not None and not self.starttls:
            message = "a password is never sent without TLS"
            yield wrong("notification", message, "remove starttls: false", at=("starttls",))


Occasion = Literal[
    "alert",
    "budget",
    "run_failed",
    "run_completed",
    "suggestion",
    "review_needed",
    "schedule_missed",
]
WITH_CONDITION = frozenset({"alert", "budget", "schedule_missed"})
"""Occasions that begin and end, so that an issue can be opened and closed for them."""


class Notification(Shape):
    """A recipient of notifications."""

    model_config = ConfigDict(json_schema_extra=one_of_keys("webhook_env", "smtp", "github_issues"))

    name: Name = Field(description="Name of the recipient, for commands and lists.")
    on: Annotated[tuple[Occasion, ...], items(1, 7), UNIQUE] = Field(description="Occasions.")
    webhook_env: EnvName | None = Field(None, description="Variable with the URL to post to.")
    smtp: Smtp | None = Field(None, description="Mail server.")
    github_issues: Literal[True] | None = Field(
        None, description="Open an issue for each alert, and close it when the alert ends."
    )
    format: Literal["json", "slack", "teams"] = Field(
        "json", description="Format of the webhook body."
    )
    secret_env: EnvName | None = Field(
        None, description="Variable with the secret that signs the webhook; format json only."
    )
    texts: bool = Field(
        False, description="Whether texts of prompts, cases and answers may be sent."
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables that hold a secret."""
        password = self.smtp.password_env if self.smtp is not None else None
        return tuple(name for name in (self.webhook_env, self.secret_env, password) if name)

    def broken_rules(self) -> Iterator[Exception]:
        """Yield what does not fit together; only that, if it has not exactly one way to send."""
        need_one_of(
            self,
            "webhook_env",
            "smtp",
            "github_issues",
            of="a notification",
            add="webhook_env: NAME_OF_VARIABLE, smtp: {...} or github_issues: true",
        )
        webhook = self.webhook_env is not None
        if self.secret_env is not None and not (webhook and self.format == "json"):
            message = "only a webhook with format json is signed"
            yield wrong("notification", message, "remove secret_env", at=("secret_env",))
        if self.format != "json" and not webhook:
            message = f"format {self.format} is for webhooks"
            yield wrong("notification", message, "remove format", at=("format",))
        if self.github_issues:
            for index, occasion in enumerate(self.on):
                if occasion not in WITH_CONDITION:
                    message = f"{occasion} has no end, so an issue for it would stay open"
                    hint = f"use {', '.join(sorted(WITH_CONDITION))}"
                    yield wrong("notification", message, hint, at=("on", index))


class SharedBudget(Shape):
    """A monthly budget that several machines share: each leases money from a site."""

    url_env: EnvName = Field(description="Variable with the address of the site.")
    token_env: EnvName = Field(description="Variable with the token of an editor of the site.")
    if_unreachable: Literal["stop", "continue"] = Field(
        "stop", description="What runs do when what they leased is spent and the site is down."
    )


class SiteLimits(Shape):
    """Limits of a site on all machines that lease from it, for a calendar month in UTC."""

    monthly_usd: MonthlyDollars | None = Field(
        None, description="Limit of all projects together in dollars."
    )
    teams: Annotated[dict[Name, MonthlyDollars], items(0, 1_000)] = Field(
        {}, description="Limits of teams in dollars: name to limit."
    )
    projects: Annotated[dict[Name, MonthlyDollars], items(0, 1_000)] = Field(
        {}, description="Limits of projects in dollars: name in kebab-case to limit."
    )


class SharedCacheEntry(Shape):
    """A server on which checkouts share their answers."""

    url_env: EnvName = Field(
        description="Variable with the URL below which answers are kept; unset, there is no cache."
    )
    token_env: EnvName | None = Field(
        None, description="Variable with a bearer token, or with a whole header (`Name: value`)."
    )
    unsigned: Literal["replay", "ignore"] = Field(
        "replay",
        description="Answers without a trusted signature: `replay` uses them, and the run is "
        "inconclusive at best; `ignore` asks the model.",
    )


def _cron(value: str) -> str:
    if (fault := config_cron.wrong_cron(value)) is not None:
        raise wrong("cron", f"{short(value)} {fault}", config_cron.HINT)
    return value


class Schedule(Shape):
    """A schedule of runs."""

    name: Name = Field(description="Name.")
    cron: Annotated[str, Field(max_length=200), AfterValidator(_cron)] = Field(
        description="Five fields, UTC: minute hour day month weekday.",
        json_schema_extra={"pattern": r"^\s*\S+(?:\s+\S+){4}\s*$", "examples": ["0 9 * * 1-5"]},
    )
    enabled: bool = Field(True, description="Whether the schedule is active.")
    budget_usd: Dollars | None = Field(
        None, description="Budget of each run it starts, in dollars; default: stop.budget_usd."
    )


def _files_of_production(value: str) -> str:
    folder, _, name = value.rpartition("/")
    if any(sign in folder for sign in "*?["):
        raise wrong("path", "only the name of a file may have wildcards", 'write "logs/*.jsonl"')
    if not name.endswith((".jsonl", ".json")):
        raise wrong("path", f"{short(value)} is not a .jsonl or .json file", "name such files")
    return value


class Production(Shape):
    """Answers of production, of which a sample is graded beside the dataset."""

    files: Annotated[FilePath, AfterValidator(_files_of_production)] = Field(
        description="Traces (OTLP JSON) or rows with input and text; wildcards in the name.",
        json_schema_extra={"examples": ["logs/*.jsonl"]},
    )
    sample: int = Field(50, ge=1, le=10_000, description="Answers that are graded at a time.")
    input: VariableName = Field(
        "message", description="Variable that gets the message of the user of a trace."
    )
    prompt: FilePath | None = Field(
        None, description="The prompt that production uses; default: the first."
    )


LanguageCode = Annotated[
    str,
    TextPattern("[a-z]{2,3}", "the code of a language", "write an ISO 639 code such as en or de"),
]


class CoverageTargets(Shape):
    """Values that the cases are to cover; a dimension that is left out has its usual values."""

    at_least: int = Field(3, ge=1, le=1_000, description="Cases that each value needs.")
    tags: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
                    items(0, 200), UNIQUE] = Field((), description="Tags.")  # fmt: skip
    entities: Annotated[
        tuple[Literal["number", "date", "amount", "percent", "time", "email", "url"], ...],
        items(0, 7),
        UNIQUE,
    ] = Field((), description="Kinds of things that inputs mention.")
    lengths: Annotated[tuple[Literal["XS", "S", "M", "L", "XL"], ...], items(0, 5), UNIQUE] = Field(
        (), description="Lengths of the inputs."
    )
    ambiguity: Annotated[tuple[Literal["clear", "ambiguous"], ...], items(0, 2), UNIQUE] = Field(
        (), description="Whether inputs can be understood in two ways."
    )
    languages: Annotated[tuple[LanguageCode, ...], items(0, 50), UNIQUE] = Field(
        (), description="Languages of the inputs, by their ISO 639 codes."
    )
    difficulty: Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], items(0, 5), UNIQUE] = (
        Field((), description="Difficulties.")
    )
