"""What of a run does an address ask to see?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from edison_ci.report.datasette_plugin.looking import Args

METRICS = ("grade", "tokens", "cost", "latency")
SORTS = ("name", "worst", "best")
STATUSES = ("ok", "malformed", "error", "blocked", "skipped")


class Graded(NamedTuple):
    """A part of grades: a check, criterion or grader."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """As an address has it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a run is to be shown, as the address says."""

    side: str
    metric: str
    sort: str
    tag: str
    prompt: str
    model: str
    status: str
    failed: bool
    flagged: bool
    part: Graded | None
    text: str
    deep: bool
    """Whether the text is looked for in every answer, however long that takes."""

    @classmethod
    def of(cls, args: Args) -> Wish:
        """Read the arguments of an address; what nobody knows is as if it were not there."""
        kind, sign, name = args.text("part").partition(":")
        return cls(
            side=args.choice("side", ("head", "base")),
            metric=args.choice("metric", METRICS),
            sort=args.choice("sort", SORTS),
            tag=args.text("tag"),
            prompt=args.text("prompt"),
            model=args.text("model"),
            status=args.choice("status", ("", *STATUSES)),
            failed=args.flag("failed"),
            flagged=args.flag("flagged"),
            part=Graded(kind, name) if sign and name else None,
            text=args.text("q"),
            deep=args.flag("deep"),
        )

    @property
    def filtered(self) -> bool:
        """Whether some cases may be left out."""
        return bool(self.tag or self.status or self.failed or self.flagged or self.text)
