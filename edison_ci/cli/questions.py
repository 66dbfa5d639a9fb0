"""Questions on a terminal that can be gone back from: texts, and drafts to accept or change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.terminal import BAD, StyledText
from edison_ci.documents import marks, secrets
from edison_ci.errors import ConfigError, EdisonError
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.cli.terminal import Terminal


class GoBack(Exception):
    """The person wants the question before."""


class Later(Exception):
    """The person stops for now."""


class Offer(NamedTuple):
    """Something that can be accepted."""

    text: str
    """What is edited, and accepted."""
    lines: tuple[str, ...] = ()
    """What is shown, if not the text."""
    label: str = ""
    name: str = ""
    by: tuple[str, str] | None = None
    """The model that wrote it, and the version of its instructions."""


@dataclass(frozen=True, slots=True)
class Offering:
    """What a step offers, and what it does with what is accepted."""

    draft: Callable[[int], Sequence[Offer]]
    """Returns drafts by number; raises EdisonError."""
    accept: Callable[[Offer], None]
    """Takes an offer; raises ConfigError or EdisonError with what is wrong."""
    own: Callable[[], Offer | None]
    """Asks for a text of the person's own; None if there is none."""
    extension: str = ".txt"
    redone: Callable[[], int] = lambda: 0
    """Returns the number of the next draft."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks a person at a terminal."""

    terminal: Terminal

    def ask(self, question: str, default: str = "") -> str:
        """Return the answer, or the default if it is empty; raises GoBack or Later."""
        while True:
            # The question may hold names of a file that is imported.
            said: str = click.prompt(
                line(question), default=default, show_default=False, prompt_suffix=": ", err=True
            )
            said = said.strip()
            if said.lower() == "b":
                raise GoBack
            if said.lower() == "q":
                raise Later
            if not any(secrets.secrets_in(said)):
                return said
            self.wrong("this looks like a key, so it is not kept; keys stay in the environment")

    def edit(self, text: str, extension: str) -> str | None:
        """Return a text as a person changed it in an editor; None if it is the same."""
        try:
            edited = click.edit(text, extension=extension)
        except click.ClickException as error:
            self.wrong(f"{error.message}; set EDITOR to an editor that is installed")
            return None
        if edited is None or edited.strip() == text.strip():
            self.terminal.note("it was not changed")
            return None
        return edited

    def wrong(self, text: str) -> None:
        """Say what is wrong with an answer."""
        self.terminal.note(StyledText(text, BAD))

    def settle(self, offering: Offering, current: Offer | None, number: int) -> None:
        """Offer drafts until one is accepted; what was accepted before is offered first."""
        offers: Sequence[Offer] = (
            (current,) if current is not None else self._draft(offering, number)
        )
        kept = current is not None
        while True:
            said = self.ask(_question(len(offers), kept=kept)).lower()
            chosen: Offer | None = None
            if said == "r":
                offers, kept = self._draft(offering, offering.redone()), False
                continue
            if said == "o":
                chosen = offering.own()
            elif (place := _place(said, len(offers))) is None:
                self.wrong(f"{said!r} is none of these")
            elif said.startswith("e"):
                edited = self.edit(offers[place].text, offering.extension)
                chosen = None if edited is None else offers[place]._replace(text=edited, by=None)
            else:
                chosen = offers[place]
            if chosen is not None and self._accepted(offering, chosen):
                return

    def _draft(self, offering: Offering, number: int) -> Sequence[Offer]:
        try:
            offers = offering.draft(number)
        except EdisonError as error:
            self._failed(error)
            return ()
        self.show(offers)
        return offers

    def show(self, offers: Sequence[Offer]) -> None:
        """Print offers, numbered if there are several."""
        for number, offer in enumerate(offers, start=1):
            if offer.label:
                head = f"{number}  {offer.label}" if len(offers) > 1 else offer.label
                self.terminal.result(StyledText(head, bold=True), hang=3)
            for row in offer.lines or offer.text.splitlines():
                self.terminal.result(f"  {row}", hang=4)
            self.terminal.result()

    def _accepted(self, offering: Offering, chosen: Offer) -> bool:
        try:
            offering.accept(chosen)
        except ConfigError as error:
            self.terminal.problems(error.problems)
        except EdisonError as error:
            self._failed(error)
        except marks.Fault as fault:
            self.wrong(fault.message)
        else:
            return True
        return False

    def _failed(self, error: EdisonError) -> None:
        self.wrong(error.message)
        if error.hint:
            self.terminal.note(f"  {error.hint}")


def _question(offers: int, *, kept: bool) -> str:
    rest = "r drafts anew" if kept else "r redoes"
    rest += ", o writes your own, b goes back"
    if offers == 0:
        return f"r tries again, {rest.partition(', ')[2]}"
    if offers == 1:
        return f"Enter {'keeps' if kept else 'accepts'}, e edits, {rest}"
    return f"1 to {offers} accepts (Enter: 1), e1 edits, {rest}"


def _place(said: str, offers: int) -> int | None:
    """Return which offer was meant; None if it was none."""
    digits = said.removeprefix("e").removeprefix("a") or "1"
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= offers:
        return None
    return int(digits) - 1
