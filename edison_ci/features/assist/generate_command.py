"""edison dataset generate: cases that models write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config.slices import SIZES
from edison_ci.errors import UsageError
from edison_ci.features.assist import case_replies, generated_cases, generated_rows, generation
from edison_ci.features.assist.case_slots import COUNTS, DIVERSITIES, TYPES, CaseOrder
from edison_ci.results import case_likeness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.config.load import Experiment
    from edison_ci.features.assist.drafting import Drafter
    from edison_ci.records import Case

_LANGUAGE = re.compile(r"[a-z]{2,3}\Z")
_SHARE = re.compile(r"([1-5])(?::(\d{1,3}))?\Z")
_MOST_WISHES, _LONGEST_WISH = 50, 100

_SHARED = (
    click.option(
        "--by", "writers", multiple=True, metavar="MODEL",
        help="Model that writes; repeatable; default: defaults.assistant.",
    ),
    click.option(
        "--verify-by", metavar="MODEL", help="Second model that checks the expected answers."
    ),
    click.option(
        "--set", "values", multiple=True, metavar="NAME=VALUE",
        help="Value of an input that all cases share; repeatable.",
    ),
    click.option("--dataset", "path", metavar="FILE", help="Dataset file (.jsonl) to add to."),
    click.option(
        "--seed", type=click.IntRange(0, 2**31), metavar="N",
        help="Another seed writes other cases; default: by what the dataset has.",
    ),
    sessions.budget,
    click.option("--yes", is_flag=True, help="Add the cases without asking."),
)  # fmt: skip


def writing_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that have cases written."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


class Given:
    """What commands that have cases written begin with."""

    def __init__(self, state: CliState, experiment: str | None, action: str, kind: str,
                 **given: Any) -> None:  # fmt: skip
        self.terminal, self.project = Terminal(state), lookup.open_project(state)
        self.experiment: Experiment = lookup.find_experiment(self.project, experiment)
        self.action = action
        run_sessions.require_editor(self.project, action)
        name = "generated" if kind == "synthetic" else kind
        path = given["path"] or (
            f"{self.project.file.paths.datasets}/{self.experiment.id}-{name}.jsonl"
        )
        self.file = generated_rows.GeneratedRows(self.project, self.experiment, path, kind)
        self.file.check()
        self.cases: list[Case] = [*self.file.cases()]
        self.context = run_sessions.run_context(self.project, offline=state.offline)
        self.writers = generation.writers_of(self.project, given["writers"], self.context)
        self.verifier: Drafter | None = None
        if given["verify_by"]:
            (self.verifier,) = generation.writers_of(
                self.project, [given["verify_by"]], self.context
            )
            names = {drafter.models[0].name for drafter in self.writers}
            if names == {self.verifier.models[0].name}:
                raise UsageError(
                    f"{given['verify_by']} writes the cases itself",
                    hint="another model has to agree: --verify-by NAME",
                )
        self.seed: int = len(self.cases) if given["seed"] is None else given["seed"]
        self.budget: int | None = sessions.microusd(given["budget"])
        self.yes: bool = given["yes"]
        self.fixed = lookup.parse_variables(self.experiment.prompts[0], given["values"])

    def known(self, names: Mapping[str, str], diversity: int) -> case_likeness.KnownCases:
        """Return the cases that are there."""
        return case_likeness.KnownCases((case.inputs for case in self.cases), names, diversity)


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--hints", default="", metavar="TEXT", help="What the cases are about.")
@click.option(
    "--count", type=click.IntRange(*COUNTS), default=20, show_default=True, metavar="N",
    help="Number of cases, 10 to 500.",
)  # fmt: skip
@click.option(
    "--diversity", type=click.IntRange(*DIVERSITIES), default=5, show_default=True, metavar="N",
    help="How far apart the cases are, 1 to 10.",
)  # fmt: skip
@click.option(
    "--language", "languages", multiple=True, metavar="CODE",
    help="Language such as en or de; repeatable.",
)  # fmt: skip
@click.option(
    "--length", "lengths", multiple=True, type=click.Choice(SIZES),
    help="Length of the inputs: XS to 10 words, S 50, M 200, L 1,000, else XL.",
)  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="TEXT", help="Topic; repeatable.")
@click.option(
    "--type", "types", multiple=True, type=click.Choice([*TYPES]), metavar="TYPE",
    help="Type such as reasoning or code; repeatable. An unknown one lists all.",
)  # fmt: skip
@click.option(
    "--difficulty", "shares", multiple=True, metavar="N[:SHARE]",
    help="Difficulty from 1 to 5 and its share, such as 3:60; repeatable.",
)  # fmt: skip
@writing_options
@click.pass_obj
def generate(state: CliState, /, experiment: str | None, **given: Any) -> None:
    """Have models write cases for an experiment, for you to accept.

    Each case gets a difficulty, and a topic, type, language and length if some are named; at least
    one in ten is an edge case. Rows that do not fit the prompt, or repeat another case, are left
    out and asked for again; what is still missing then is said. The cases go into a dataset of
    kind synthetic, each with the model that wrote it. What they expect counts as unverified until a
    second model (--verify-by) or a person agrees. Replies are stored: after Ctrl-C the same command
    continues.

    Examples:
      edison dataset generate --hints "late parcels and refunds" --count 40
      edison dataset generate --language de --language en --length S --yes
      edison dataset generate --topic billing --type reasoning --difficulty 4:70
      edison dataset generate --by small --by large --verify-by judge
    """
    begun = Given(state, experiment, "dataset generate", "synthetic", **given)
    hints = given["hints"].strip() or (begun.experiment.file.objective or "")[:1_000]
    order = CaseOrder(
        given["count"],
        hints,
        begun.seed,
        given["diversity"],
        _wishes(given["languages"], "--language"),
        tuple(dict.fromkeys(given["lengths"])),
        _wishes(given["topics"], "--topic"),
        tuple(dict.fromkeys(given["types"])),
        _difficulties(given["shares"]),
    )
    order.check()
    form = case_replies.form_of(
        begun.experiment,
        begun.cases,
        begun.fixed,
        languages=order.languages,
        lengths=order.lengths,
    )
    writers = generation.Writers(
        begun.project,
        begun.experiment,
        form,
        begun.writers,
        order.hints,
        order.diversity,
        order.seed,
        tuple(begun.cases),
        budget_microusd=begun.budget,
    )
    generated_cases.CaseOffer(
        begun.terminal,
        begun.file,
        writers,
        order.slots(),
        begun.known(form.types, order.diversity),
        begun.action,
        begun.verifier,
    ).settle(yes=begun.yes)


def _wishes(texts: Sequence[str], option: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(text.strip() for text in texts))
    if len(found) > _MOST_WISHES:
        raise UsageError(f"{len(found)} times {option}; at most {_MOST_WISHES}")
    for text in found:
        if option == "--language" and not _LANGUAGE.match(text):
            raise UsageError(
                f"{text[:20]!r} is not the code of a language", hint="write one such as en or de"
            )
        if not 1 <= len(text) <= _LONGEST_WISH:
            raise UsageError(f"{option} has {len(text)} characters; 1 to {_LONGEST_WISH} fit")
    return found


def _difficulties(shares: Sequence[str]) -> dict[int, float]:
    found: dict[int, float] = {}
    for text in shares:
        match = _SHARE.match(text)
        if match is None:
            raise UsageError(
                f"{text[:20]!r} is not a difficulty with its share", hint="write one such as 3:60"
            )
        found[int(match[1])] = float(match[2] or 1)
    if not any(found.values()):
        return dict.fromkeys(range(1, 6), 1.0)
    return {level: share for level, share in found.items() if share}
