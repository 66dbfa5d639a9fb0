"""The safety screens of an experiment file: what is looked for, and what a finding does."""

from typing import Annotated, Any, Literal, cast

from pydantic import Field, field_validator

from edison_ci.safety import names as safety_names
from edison_ci.shape import Name, Shape, Shorthand, TextPattern, short, wrong
from edison_ci.spelling import did_you_mean

_TEXT_SCREENS = ("pii", "jailbreak", "secrets")
"""Screens without a model, of answers and of inputs."""
_MODEL_SCREENS = ("moderation", "toxicity")
SAFETY_KINDS = (
    "any",
    *_TEXT_SCREENS,
    *_MODEL_SCREENS,
    *(f"input_{kind}" for kind in _TEXT_SCREENS),
)
_PIPELINE = TextPattern(
    r"[a-z][a-z0-9_]*",
    "a name of a package",
    "write the name of an installed pipeline, such as en_core_web_sm",
    "name",
)
Action = Literal["block", "flag", "off"]
DataAction = Literal["block", "flag", "redact", "off"]
PiiKind = Literal["e-mail", "phone", "ssn", "national-id", "iban", "card", "ip", "person", "place"]


class PersonalData(Shape):
    """A screen for personal data."""

    action: DataAction = Field("flag", description="Action on a finding.")
    kinds: dict[PiiKind, DataAction] = Field(
        default_factory=dict, description="Actions of single kinds, in place of `action`."
    )
    names_by: Annotated[str, Field(max_length=100), _PIPELINE] | None = Field(
        None,
        description="Installed pipeline of spaCy that finds names of people and places.",
    )

    @field_validator("kinds", mode="before")
    @classmethod
    def _known_kinds(cls, value: Any) -> Any:
        unknown = (
            [key for key in value if key not in safety_names.PII_KINDS]
            if isinstance(value, dict)
            else []
        )
        if unknown:
            hint = did_you_mean(str(unknown[0]), safety_names.PII_KINDS)
            raise wrong("value", f"unknown kind of personal data {short(unknown[0])}", hint)
        return value

    def action_of(self, kind: str) -> DataAction:
        """Return the action for a kind of personal data."""
        return self.kinds.get(cast("PiiKind", kind), self.action)

    def redacted_kinds(self) -> frozenset[str]:
        """Return the kinds that are redacted."""
        if self.action != "redact" and not self.kinds:
            return frozenset()
        return frozenset(
            kind for kind in safety_names.PII_KINDS if self.action_of(kind) == "redact"
        )

    @property
    def active(self) -> bool:
        """Whether any kind is looked for."""
        if not self.kinds:
            return self.action != "off"
        return any(self.action_of(kind) != "off" for kind in safety_names.PII_KINDS)


PersonalDataEntry = Annotated[PersonalData, Shorthand("action")]


class TextScreens(Shape):
    """Safety screens without a model."""

    pii: PersonalDataEntry = Field(
        default_factory=lambda: PersonalData.model_construct(action="off"),
        description="E-mail, phone, SSN, national id, IBAN, card, IP.",
        json_schema_extra={"default": "off"},
    )
    jailbreak: Action = Field("off", description="Jailbreak patterns.")
    secrets: DataAction = Field("off", description="API keys and tokens.")

    def active(self) -> set[str]:
        """Return the kinds that are enabled."""
        on = {kind for kind in ("jailbreak", "secrets") if getattr(self, kind) != "off"}
        return on | ({"pii"} if self.pii.active else set())


class Moderation(Shape):
    """A safety screen by a model."""

    by: Name = Field(description="Model that screens.")
    action: Action = Field("flag", description="Action on a hit.")
    threshold: float = Field(0.5, ge=0, le=1, description="Lowest score that is a hit.")


class Safety(TextScreens):
    """Safety screens of every answer, and of the inputs before they are sent."""

    moderation: Moderation | None = Field(None, description="Moderation by a model.")
    toxicity: Moderation | None = Field(None, description="Toxicity by a model.")
    inputs: TextScreens = Field(
        default_factory=TextScreens.model_construct,
        description="Screens of the inputs of a case, before a model gets them.",
    )

    def active(self) -> set[str]:
        """Return the kinds that are enabled, as gates name them."""
        by_model = {kind: getattr(self, kind) for kind in _MODEL_SCREENS}
        of_answers = super().active() | {
            kind for kind, screen in by_model.items() if screen and screen.action != "off"
        }
        inputs = {f"input_{kind}" for kind in self.inputs.active()}
        return of_answers | inputs | ({"any"} if of_answers else set())
