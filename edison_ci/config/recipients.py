"""Recipients of notifications in edison.yaml: webhooks, mail and issues."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from edison_ci.shape import (
    UNIQUE,
    Email,
    EnvName,
    Name,
    Shape,
    items,
    need_one_of,
    one_of_keys,
    wrong,
)


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

    @model_validator(mode="after")
    def _signs_in_with_both(self) -> Self:
        if (self.user_env is None) != (self.password_env is None):
            given, other = (
                ("user_env", "password_env")
                if self.password_env is None
                else ("password_env", "user_env")
            )
            said = f"smtp has {given} and no {other}"
            raise wrong("notification", said, f"add {other}, or remove {given}", at=(given,))
        if self.password_env is not None and not self.starttls:
            said = "a password is never sent without TLS"
            raise wrong("notification", said, "remove starttls: false", at=("starttls",))
        return self


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

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
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
            said = "only a webhook with format json is signed"
            raise wrong("notification", said, "remove secret_env", at=("secret_env",))
        if self.format != "json" and not webhook:
            said = f"format {self.format} is for webhooks"
            raise wrong("notification", said, "remove format", at=("format",))
        if self.github_issues:
            for index, occasion in enumerate(self.on):
                if occasion not in WITH_CONDITION:
                    said = f"{occasion} has no end, so an issue for it would stay open"
                    hint = f"use {', '.join(sorted(WITH_CONDITION))}"
                    raise wrong("notification", said, hint, at=("on", index))
        return self
