"""Who carries out what people decide on a page?

Deciding is built on top of reporting, so pages cannot reach it: `edison serve` hands a clerk in.
Without one, pages show the commands instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Project
    from edison_ci.operate.actors import Actor
    from edison_ci.operate.gradebook import Given
    from edison_ci.operate.site import Site
    from edison_ci.store.grades import ManualGrade
    from edison_ci.store.suggestions import Suggestion


class Way(NamedTuple):
    """Something that can be done about a suggestion, or why it cannot."""

    open: bool
    says: str
    """What will happen, or what stands in the way, as a sentence."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What somebody can do about a suggestion here and now."""

    approve: Way
    reject: Way
    edit: Way
    comment: Way


class Refused(UsageError):
    """A text that was not taken; whoever wrote it gets it back with the reason."""

    def __init__(self, reason: str, text: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.text = text


class Done(NamedTuple):
    """What came of a decision."""

    suggestion: Suggestion
    """As it is now; after an edit, the new one."""
    notes: tuple[str, ...] = ()
    """What else somebody should know."""


class Clerk(Protocol):
    """Carries out decisions, by the same functions as the commands.

    `seen` is the status that the page showed: what somebody else has decided meanwhile is refused.
    Who sends the same form twice gets the same answer, and nothing is done again.
    """

    def outlook(self, project: Project, actor: Actor, one: Suggestion) -> Outlook:
        """Return what somebody can do about a suggestion."""
        ...

    def approve(self, site: Site, actor: Actor, wanted: str, seen: str) -> Done:
        """Take a suggestion."""
        ...

    def reject(self, site: Site, actor: Actor, wanted: str, seen: str, reason: str) -> Done:
        """Leave a suggestion, and say why."""
        ...

    def comment(self, site: Site, actor: Actor, wanted: str, text: str) -> Done:
        """Say something about a suggestion."""
        ...

    def draft(self, project: Project, actor: Actor, one: Suggestion) -> str:
        """Return the prompt as it would be, for somebody who may edit it."""
        ...

    def edit(self, site: Site, actor: Actor, wanted: str, text: str) -> Done:
        """Put an edited suggestion in the place of one; a text that is not taken is `Refused`."""
        ...

    def grade(
        self, site: Site, actor: Actor, cell: str, given: Given, criteria: Mapping[str, str]
    ) -> ManualGrade:
        """Write down what somebody says of the answer of a cell; criteria by slug, as written."""
        ...
