"""Cases over time: their texts in Git, their results by text, and those whose answers disagree.

The work is bounded for any dataset and history: a number of commits, of bytes that are searched,
and a smaller one of bytes that are parsed. A row that did not change is recognised by its bytes, so
most commits of a file need no parsing.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import content_hash
from edison_ci.config.cases import CaseFeed
from edison_ci.documents.dataset_text import read_dataset_text
from edison_ci.documents.files import read
from edison_ci.documents.marks import Fault
from edison_ci.git.repository import Repository
from edison_ci.numeric import fixed, reaches, snap
from edison_ci.results.snapshot import MOST_RUNS, complete_runs, grading_hash

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.config.experiment import DatasetEntry
    from edison_ci.config.load import Experiment, Project
    from edison_ci.git.repository import FileChange
    from edison_ci.records import Case


MOST_COMMITS = 1_000
MOST_BYTES = 20_000_000
"""Larger files are not searched."""
MOST_SEARCHED = 400_000_000
"""Bytes of all contents that are searched for a row."""
MOST_PARSED = 5_000_000
"""Bytes of contents that are parsed, for formats that do not have a row in each line."""
MOST_TEXTS = 50
_CONTENT_ID = re.compile(r"[0-9a-f]{16}")
"""Id of a row without one, which is not in its text."""
MOST_CELLS = 5_000
"""Answers to the case that are counted, the newest first."""


class CaseText(NamedTuple):
    """A text of a case, and the first commit that has it."""

    case: Case
    hash: str
    change: FileChange | None
    """None for a text that is not committed."""


@dataclass(frozen=True, slots=True)
class CaseTexts:
    """The texts of a case in the history of its file, newest first."""

    path: str
    texts: tuple[CaseText, ...] = ()
    commits: int = 0
    """Commits that changed the file."""
    searched: int = 0
    """Commits among them that were searched."""


class _Row(NamedTuple):
    case: Case
    data: bytes
    """The row as it is written."""


def case_texts(project: Project, experiment: Experiment, case_id: str) -> CaseTexts | None:
    """Return the texts of a case; None if no file of the experiment has or had it."""
    repository = Repository.find(project.root)
    for entry in experiment.file.data:
        whole = entry.model_copy(update={"take": None, "where": {}})
        texts = _texts_in(project, experiment.types(), whole, case_id, repository)
        if texts.texts:
            return texts
    return None


def _texts_in(
    project: Project,
    types: dict[str, str],
    entry: DatasetEntry,
    case_id: str,
    repository: Repository | None,
) -> CaseTexts:
    search = _Search(entry, types, case_id)
    texts = list[CaseText]()
    try:
        row = search.row(read(project.tree, entry.path, max_bytes=MOST_BYTES))
    except Fault:
        row = None
    if row is not None:
        texts.append(CaseText(row.case, content_hash(row.case), None))
    if repository is None:
        return CaseTexts(entry.path, tuple(texts))
    path = repository.prefix_of(project.root) + entry.path
    changes = repository.changes_of(path, most=MOST_COMMITS)
    searched = 0
    blobs = (change.blob for change in changes)
    contents = repository.contents(blobs, max_bytes=MOST_BYTES)
    for change, data in zip(changes, contents, strict=True):
        if data is not None:
            if not search.may_read(data) or len(texts) == MOST_TEXTS:
                break
            row = search.row(data, row)
            _add(texts, row, change)
        searched += 1
    return CaseTexts(entry.path, tuple(texts), len(changes), searched)


def _add(texts: list[CaseText], row: _Row | None, change: FileChange) -> None:
    """Add the text of a case at a commit; that of a later one began here if it is the same."""
    if row is None:
        return
    hashed = content_hash(row.case)
    if texts and texts[-1].hash == hashed:
        texts[-1] = texts[-1]._replace(case=row.case, change=change)
    else:
        texts.append(CaseText(row.case, hashed, change))


class _Search:
    """Finds the row of a case in contents of its file, within limits."""

    def __init__(self, entry: DatasetEntry, types: dict[str, str], case_id: str) -> None:
        self._entry, self._types, self._id = entry, types, case_id
        self._by_line = entry.path.endswith(".jsonl")
        names = {json.dumps(case_id), json.dumps(case_id, ensure_ascii=False)}
        if not self._by_line:
            names = {case_id, *(name[1:-1] for name in names)}
        self._spellings = [name.encode("utf-8", "surrogatepass") for name in names]
        self._may_be_hash = _CONTENT_ID.fullmatch(case_id) is not None
        self._left, self._parseable = MOST_SEARCHED, MOST_PARSED

    def may_read(self, data: bytes) -> bool:
        """Whether a content is within the limits; counts it."""
        self._left -= len(data)
        return self._left >= 0 and self._parseable >= 0

    def row(self, data: bytes, newer: _Row | None = None) -> _Row | None:
        """Return the row of the case; None if it is not there, or cannot be read."""
        if newer is not None and newer.data in data:
            return newer
        written = any(spelling in data for spelling in self._spellings)
        if not written and not self._may_be_hash:
            return None
        if self._by_line and written:
            lines = data.split(b"\n")
            data = b"\n".join(line for line in lines if any(s in line for s in self._spellings))
        self._parseable -= len(data)
        try:
            return next(self._rows(data), None)
        except Fault:
            return None

    def _rows(self, data: bytes) -> Iterator[_Row]:
        feed = CaseFeed(_OneFile(data), (self._entry,), self._types)
        cases = list(feed)
        index = next((i for i, case in enumerate(cases) if case.id == self._id), None)
        if index is None:
            return
        written = b""
        if not feed.problems:  # otherwise rows and cases cannot be counted alike
            text = read_dataset_text(self._entry.path, data)
            edit = text.removal(index)
            written = text.text[edit.start : edit.end].strip("\r\n").encode()
        # Without the bytes of the row, nothing is recognised by them.
        yield _Row(cases[index], written or b"\xff")


class _OneFile:
    """A tree with one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        del path, max_bytes
        return io.BytesIO(self._data)

    def names(self, folder: str) -> list[str]:
        del folder
        return []

    def exists(self, path: str) -> bool:
        del path
        return True


@dataclass(frozen=True, slots=True)
class TextResults:
    """The results of a case with one text."""

    hash: str
    answers: int
    passed: int
    decided: int
    """Answers that pass or fail."""
    mean: float
    models: tuple[str, ...]
    first_run: str
    last_run: str


def results_by_text(
    connection: sqlite3.Connection, experiment: str, case_id: str
) -> dict[str, TextResults]:
    """Return the results of a case by the hash of its text, the newest first."""
    rows = connection.execute(
        "select coalesce(c.case_hash, ''), c.composite, c.passed, c.model, c.run_id "
        "from cell c join run r on r.id = c.run_id "
        "where c.case_id = ? and r.experiment = ? and c.composite is not null "
        "order by r.created_at desc, c.id limit ?",
        (case_id, experiment, MOST_CELLS),
    )
    grouped: dict[str, list[tuple[float, int | None, str, str]]] = {}
    for hashed, *rest in rows.fetchall():
        grouped.setdefault(hashed, []).append((rest[0], rest[1], rest[2], rest[3]))
    results = {}
    for hashed, cells in grouped.items():
        decided = [passed for _, passed, _, _ in cells if passed is not None]
        results[hashed] = TextResults(
            hash=hashed,
            answers=len(cells),
            passed=sum(decided),
            decided=len(decided),
            mean=sum(score for score, *_ in cells) / len(cells),
            models=tuple(dict.fromkeys(model for _, _, model, _ in cells)),
            first_run=cells[-1][3],
            last_run=cells[0][3],
        )
    return results


# What is repeated is the same question: one case as it is now, one prompt version, one model. Its
# answers are its repeats and what was bought again, in complete runs that were graded
# alike. An answer that was graded both ways, by a judge who was asked twice, counts for both.
FEWEST = 3
"""Answers to one question below which its flakiness is not reported."""
SHARE = 0.2
"""A question is flaky if at least this share of its answers disagrees with the others."""
APART = 0.5
"""Distance from which two scores disagree (STATS 3)."""
RULE = (
    f"at least {FEWEST} answers to the same question, and at least {fixed(100 * SHARE)}% of them "
    f"come out otherwise than the rest, or two are {fixed(100 * APART)} or more points apart"
)


@dataclass(frozen=True, slots=True)
class Flaky:
    """A question whose answers disagree."""

    case: str
    prompt: str
    version: str
    model: str
    answers: int
    passed: int
    low: float | None
    """Lowest and highest score."""
    high: float | None
    regraded: int
    """Answers that were graded both ways: there it is the judges who disagree."""

    @property
    def disagreeing(self) -> float:
        """Share of the answers that are in the minority."""
        return min(self.passed, self.answers - self.passed) / self.answers

    @property
    def spread(self) -> float:
        """How far apart the scores are."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low

    @property
    def is_flaky(self) -> bool:
        """Whether the rule holds."""
        if self.answers < FEWEST:
            return False
        return reaches(self.disagreeing, SHARE) or reaches(self.spread, APART)


@dataclass(slots=True)
class Flakiness:
    """Flaky cases of an experiment, by its answers."""

    runs: int = 0
    simulated: bool = False
    questions: int = 0
    """Cases with a prompt version and a model that have enough answers."""
    too_few: int = 0
    """Those that have fewer."""
    found: list[Flaky] = field(default_factory=list)
    """The most disagreeing first."""

    @property
    def cases(self) -> list[str]:
        """Return the flaky cases, the most disagreeing first."""
        return list(dict.fromkeys(flaky.case for flaky in self.found))


def flakiness_of(connection: sqlite3.Connection, experiment: str) -> Flakiness:
    """Return the flaky cases by the answers to the prompts and models of its newest run."""
    runs = complete_runs(connection, experiment, MOST_RUNS)
    if not runs:
        return Flakiness()
    grading = grading_hash(runs[0])
    alike = [run for run in runs if grading_hash(run) == grading]
    result = Flakiness(len(alike), any(run.simulated for run in alike))
    for flaky in _questions(connection, runs[0].id, [run.id for run in alike]):
        if flaky.answers < FEWEST:
            result.too_few += 1
            continue
        result.questions += 1
        if flaky.is_flaky:
            result.found.append(flaky)
    result.found.sort(key=lambda f: (-f.disagreeing, -snap(f.spread), f.case, f.model))
    return result


def _questions(connection: sqlite3.Connection, newest: str, runs: list[str]) -> Iterator[Flaky]:
    """Yield the answers to each question that the newest run asked, counted."""
    places = ", ".join("?" * len(runs))
    rows = connection.execute(
        "with graded as (select distinct c.case_id, c.prompt, c.version, c.model, c.request_hash, "
        "c.answer_no, c.passed, c.composite from cell c "
        "join cell n on n.run_id = ? and n.side = 'head' and n.repeat = 0 "
        "and n.case_id = c.case_id and n.prompt = c.prompt and n.version = c.version "
        "and n.model = c.model and n.case_hash is c.case_hash "
        f"where c.run_id in ({places}) and c.passed is not null and c.answer_no is not null "
        "and c.status in ('ok', 'malformed')), "
        "answered as (select case_id, prompt, version, model, request_hash, answer_no, "
        "max(passed) as most, "
        "min(passed) as least, min(composite) as low, max(composite) as high "
        "from graded group by 1, 2, 3, 4, 5, 6) "
        "select case_id, prompt, version, model, count(*) + sum(most > least), sum(most), "
        "min(low), max(high), sum(most > least) from answered group by 1, 2, 3, 4",
        [newest, *runs],
    )
    for row in rows:
        yield Flaky(*row)
