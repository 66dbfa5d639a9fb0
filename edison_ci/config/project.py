"""The models of edison.yaml: project, defaults, settings, members and notifications."""

import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from edison_ci import feature, ranges
from edison_ci.errors import UsageError
from edison_ci.shape import (
    Email,
    FilePath,
    Name,
    Shape,
    TextPattern,
    details,
    items,
    repeats,
    section,
    short,
    some_of_keys,
    within,
    wrong,
)
from edison_ci.spelling import odd_character

if TYPE_CHECKING:
    from edison_ci.config.sections import Notification, SharedBudget, SharedCacheEntry, SiteLimits
else:
    Notification = section("edison_ci.config.sections", "Notification")
    SharedBudget = section("edison_ci.config.sections", "SharedBudget")
    SharedCacheEntry = section("edison_ci.config.sections", "SharedCacheEntry")
    SiteLimits = section("edison_ci.config.sections", "SiteLimits")


def _version(value: object) -> object:
    if type(value) is not int:  # a Literal accepts true and 1.0 for 1
        raise wrong("value", f"version is {short(value)}", "write version: 1")
    return value


Version = Annotated[
    Literal[1], BeforeValidator(_version), Field(description="Version of the file format.")
]
Dollars = Annotated[float, within(ranges.RUN_USD)]
MonthlyDollars = Annotated[float, within(ranges.MONTH_USD)]
Iterations = Annotated[int, within(ranges.ITERATIONS)]

_PROJECT = re.compile(r"[A-Za-z0-9 _-]+\Z")


def _project_name(value: str) -> str:
    if not _PROJECT.match(value):
        odd = odd_character(value) or "a character that is not allowed"
        hint = "use letters, digits, spaces, '-' and '_'"
        raise wrong("name", f"{short(value)} contains {odd}", hint)
    if not slug(value):
        raise wrong("name", f"{value!r} has no letter or digit", "write a name such as my-project")
    return value


def slug(name: str) -> str:
    """Return the kebab-case form of a name, at most 50 characters."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words)[:50].strip("-")


def feature_sections(file: str) -> Any:
    """Return the type of `features`: sections by feature, checked by their models, kept as written.

    So that a run has the same fingerprint where the feature is off, or not installed.
    """

    def checked(sections: dict[str, Any]) -> dict[str, Any]:
        for name, written in sections.items():
            if (model := feature.section(file, name)) is None:
                continue
            if not (isinstance(model, type) and issubclass(model, BaseModel)):
                message = f"the section of the feature {name} is {short(model)}, no pydantic model"
                raise UsageError(message, hint="reinstall or uninstall its package")
            try:
                model.model_validate(written)
            except ValidationError as error:
                below = details(error, below=(name,))
                raise ValidationError.from_exception_data(name, below) from None
        return sections

    return Annotated[dict[Name, dict[str, Any]], items(0, 100), AfterValidator(checked)]


class Paths(Shape):
    """Paths of the files of the project."""

    experiments: FilePath = Field("experiments", description="Folder of the experiments.")
    prompts: FilePath = Field("prompts", description="Folder of the prompts.")
    rubrics: FilePath = Field("rubrics", description="Folder of the rubrics.")
    datasets: FilePath = Field("datasets", description="Folder of the datasets.")
    models: FilePath = Field("models.yaml", description="File of the model registry.")


class Defaults(Shape):
    """Defaults of experiments."""

    model: Name | None = Field(None, description="Model that generates.")
    judge: Name | None = Field(None, description="Model that judges.")
    refiner: Name | None = Field(None, description="Model that proposes refinements.")
    assistant: Name | None = Field(
        None, description="Model that writes drafts for `edison assist`; default: the refiner."
    )
    budget_usd: Dollars = Field(100, description="Budget of a run or loop in dollars.")
    max_iterations: Iterations = Field(10, description="Maximum number of iterations of a loop.")


class Settings(Shape):
    """Settings of the project."""

    allow_synthetic_datasets: bool = Field(
        True, description="Whether generated data (`kind: synthetic`) is allowed."
    )
    require_review_approval: bool = Field(
        True, description="Whether every refinement needs a review (disables --auto-approve)."
    )
    approvals: int = Field(
        1, ge=1, le=10, description="People who have to approve a refinement, without its author."
    )
    retention_days: int = Field(
        90, ge=0, le=36_500, description="Days that texts are kept; 0 for forever."
    )
    backups: int = Field(
        30, ge=0, le=10_000, description="Daily backups that are kept; 0 to make none."
    )
    reuse_days: int = Field(30, ge=0, le=3_650, description="Days that a stored answer is reused.")
    allow_code: bool = Field(False, description="Whether python and command checks may run.")
    redact_pii_before_storage: bool = Field(
        False, description="Whether only redacted texts are stored and graded."
    )
    private: bool = Field(False, description="Whether texts never leave the local results.db.")
    monthly_budget_usd: MonthlyDollars | None = Field(
        None, description="Budget of the project for 30 days in dollars."
    )


Role = Literal["viewer", "reviewer", "editor", "admin", "owner"]


Login = Annotated[
    str,
    Field(min_length=1, max_length=39),
    TextPattern(
        r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?",
        "a GitHub login",
        "write it without the @, as in the URL of the profile",
        "login",
    ),
]


class Member(Shape):
    """A member and their role."""

    model_config = ConfigDict(json_schema_extra=some_of_keys("github", "email"))

    github: Login | None = Field(None, description="GitHub login.")
    email: Email | None = Field(None, description="E-mail address of the Git identity.")
    role: Role = Field(description="viewer < reviewer < editor < admin < owner.")

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of a member without an account and an address."""
        if self.github is None and self.email is None:
            hint = "add github: LOGIN or email: ..."
            yield wrong("member", "a member has neither github nor email", hint)


NO_REPLY = re.compile(r"(?:\d+\+)?([^@+]+)@users\.noreply\.github\.com\Z", re.IGNORECASE)
"""An address that GitHub gives to the commits of an account; it contains the login."""


def identity_keys(kind: str, name: str) -> list[str]:
    """Return by what a person is recognised: a login, an address, or a login in an address."""
    # NFKC: the same characters can be encoded in several ways, and look alike.
    folded = unicodedata.normalize("NFKC", name).casefold()
    login = NO_REPLY.fullmatch(folded) if kind == "email" else None
    return [f"{kind} {folded}", *([f"github {login[1]}"] if login else [])]


def _same_person(first: Member, place: int, key: str, name: str) -> tuple[str, str]:
    """Return what is wrong with a second entry of a person, and what to do."""
    entry, hint = f"entry {place + 1}", "keep the one with the correct role"
    if key == "email":
        first_key = identity_keys("email", first.email)[0] if first.email else ""
        if first_key != identity_keys("email", name)[0]:
            return f"{short(name)} is the account {short(first.github)} of {entry}", hint
        if first.github:
            hint = "people are identified by it: give each their own, or only github"
            return f"{short(name)} is the address of two members, first of {entry}", hint
    return f"{short(name)} is listed twice, first in {entry}", hint


if TYPE_CHECKING:
    FeatureSections = dict[str, dict[str, Any]]
else:
    FeatureSections = feature_sections("edison")


class ProjectFile(Shape):
    """edison.yaml: the project, its defaults, settings, members and notifications."""

    version: Version
    project: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_project_name)] = (
        Field(
            description="Name of the project.", json_schema_extra={"pattern": "^[A-Za-z0-9 _-]+$"}
        )
    )
    description: str = Field("", max_length=1_000, description="Description of the project.")
    paths: Paths = Field(default_factory=Paths.model_construct, description="Paths of the files.")
    team: Name | None = Field(
        None, description="The team that the project belongs to, for costs and limits."
    )
    results: FilePath = Field(".edison/results.db", description="Path of the results file.")
    defaults: Defaults = Field(
        default_factory=Defaults.model_construct, description="Defaults of experiments."
    )
    settings: Settings = Field(
        default_factory=Settings.model_construct, description="Settings of the project."
    )
    shared_budget: SharedBudget | None = Field(
        None, description="The budget that this project shares with other machines."
    )
    limits: SiteLimits | None = Field(
        None, description="Monthly limits of the machines that lease from this site."
    )
    members: Annotated[tuple[Member, ...], items(0, 1_000)] = Field(
        (),
        description="People and their roles; without any, everyone with write access is an owner.",
    )
    notifications: Annotated[tuple[Notification, ...], items(0, 100)] = Field(
        (), description="Notifications."
    )
    cache: SharedCacheEntry | None = Field(
        None, description="Server on which checkouts share their answers."
    )
    features: FeatureSections = Field(
        {}, description="Sections of features from packages, by the name of the feature."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield what does not fit together: private texts that are sent, repeated people."""
        if self.cache is not None and self.settings.private:
            message = "settings.private keeps texts on this machine, and cache shares answers"
            yield wrong("cache", message, "remove one of the two", at=("cache",))
        for index, first in repeats(entry.name.casefold() for entry in self.notifications):
            message = f"{short(self.notifications[index].name)} is the name of two recipients"
            hint = f"entry {first + 1} has it already; choose another"
            yield wrong("duplicate", message, hint, at=("notifications", index, "name"))
        for index, recipient in enumerate(self.notifications):
            if recipient.texts and self.settings.private:
                message = "settings.private keeps texts on this machine"
                at = ("notifications", index, "texts")
                yield wrong("notification", message, "remove texts: true", at=at)
        yield from self._too_few_reviewers()
        yield from self._repeated_members()

    def _too_few_reviewers(self) -> Iterator[Exception]:
        needed, at = self.settings.approvals, ("settings", "approvals")
        able = sum(member.role != "viewer" for member in self.members)
        if needed > 1 and not self.settings.require_review_approval:
            message = f"{needed} people approve a refinement, and require_review_approval is false"
            yield wrong("approvals", message, "remove one of the two", at=at)
        elif able < needed > 1:
            message = f"{needed} people have to approve, but {able} of the members may"
            hint = "add members with the role reviewer or above, or lower it"
            yield wrong("approvals", message, hint, at=at)

    def _repeated_members(self) -> Iterator[Exception]:
        seen: dict[str, int] = {}
        for index, member in enumerate(self.members):
            for key, name in (("github", member.github), ("email", member.email)):
                if name is None:
                    continue
                first = min(seen.setdefault(same, index) for same in identity_keys(key, name))
                if first != index:
                    message, hint = _same_person(self.members[first], first, key, name)
                    yield wrong("duplicate", message, hint, at=("members", index, key))
                    return

    @property
    def slug(self) -> str:
        """Kebab-case name."""
        return slug(self.project)
