"""The sample of answers that a person grades, in random order, and what they see of each.

Cases come in a random order, so that those that were graded are a random sample whenever somebody
stops; all answers to a case come together, in a random order too, so that none can be told by its
place. An answer that several cells share is graded once. What is blocked is shown to nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.cases import STATIC
from edison_ci.config.facets import content_hash
from edison_ci.results.explanation import expected_form
from edison_ci.safety.redaction import redacted_case, redaction
from edison_ci.stats.sampling import random_rank, random_sample
from edison_ci.store.answers import answer_at

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case
    from edison_ci.stats.sampling import RandomSample
    from edison_ci.store.grades import Key
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cell whose answer can be graded."""

    id: str
    side: str
    prompt: str
    version: str
    model: str
    case_id: str
    draw: int
    address: str
    take: int
    status: str
    composite: float | None
    passed: int | None
    case_hash: str | None

    @property
    def key(self) -> Key:
        """The answer."""
        return self.case_id, self.address, self.take


@dataclass(frozen=True, slots=True)
class Seen:
    """What a person sees of an answer."""

    case: Case | None
    """None when the case changed since, or is no longer there."""
    output: Output | None
    """None when the text is no longer stored."""


_GRADABLE = "run_id = ? and status in ('ok', 'malformed') and take is not null"


def candidates(connection: sqlite3.Connection, run_id: str, seed: int) -> list[Candidate]:
    """Return the answers of a run that can be graded, in the random order of a seed."""
    rows = connection.execute(
        "select id, side, prompt, version, model, case_id, draw, address, take, status, composite, "
        f"passed, case_hash from cell where {_GRADABLE}",
        (run_id,),
    )
    ranks: dict[str, str] = {}
    found = [Candidate(*row) for row in rows]
    for one in found:
        if one.case_id not in ranks:
            ranks[one.case_id] = random_rank(seed, one.case_id)
    found.sort(key=lambda one: (ranks[one.case_id], random_rank(seed, one.id)))
    return list(_each_answer_once(found))


def _each_answer_once(found: Iterable[Candidate]) -> Iterator[Candidate]:
    known: set[Key] = set()
    for one in found:
        if one.key not in known:
            known.add(one.key)
            yield one


def sample_of(cells: Iterable[Candidate], graded: Iterable[Key], seed: int) -> RandomSample:
    """Return which cases of a run can stand for all of them: those with an answer graded."""
    done = {case for case, _, _ in graded}
    return random_sample((cell.case_id for cell in cells), done, seed)


def cases_of(
    project: Project, experiment: Experiment, cells: Iterable[Candidate]
) -> Mapping[str, Case]:
    """Return the cases of cells as far as they are still what they were, read once."""
    wanted = {cell.case_id: cell.case_hash for cell in cells}
    source = project.cases(experiment) if experiment.file.data else [STATIC]
    redact = redaction(project.file.settings)
    return {
        case.id: redacted_case(case, redact)
        for case in source
        if case.id in wanted and content_hash(case) == wanted[case.id]
    }


def seen(
    connection: sqlite3.Connection,
    run: Run,
    experiment: Experiment,
    cell: Candidate,
    cases: Mapping[str, Case],
) -> Seen:
    """Return what is to be seen of an answer."""
    stored = answer_at(connection, cell.address, cell.take)
    output = None
    if stored is not None:
        form = expected_form(run, experiment, cell.side, cell.version)
        output = parse_output(stored.completion.text, form)
    return Seen(cases.get(cell.case_id), output)
