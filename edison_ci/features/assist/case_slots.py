"""Slots of generated cases: what each case is like, decided before a model is asked.

The shares of difficulties, types, topics, languages, lengths and edge cases are those of the order,
not those that a model would prefer. The same order and seed make the same slots, so that an
interrupted command finds the replies it has already paid for.
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import zip_longest
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import LENGTHS, SIZES
from edison_ci.errors import UsageError
from edison_ci.results import slices, stored_runs, weaknesses

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.results.coverage import Coverage

COUNTS = (10, 500)
ATTACK_COUNTS = (5, 200)
HINTS = (20, 1_000)
DIVERSITIES = (1, 10)
EDGE_PERCENT = 10
"""At least this share of the cases are edge cases."""
TYPES = {
    "reasoning": "the answer needs several steps of thought",
    "knowledge": "the answer is a fact",
    "extraction": "the answer is found in the input",
    "classification": "the answer is one of a few labels",
    "creative": "many different answers would be good",
    "code": "the input or the answer is code",
    "safety": "a careless answer would do harm, or give something away",
    "multi-step": "several things are asked for, in an order",
    "summary": "the answer is shorter than the input, and says the same",
    "conversation": "the input refers to something said before",
}
EDGES = {
    "empty": "the main input is empty, or nearly so",
    "long": "the main input is much longer than usual, and most of it does not matter",
    "ambiguous": "the main input can be understood in two ways",
    "contradictory": "the main input contradicts itself, or the other inputs",
    "off-topic": "the main input is about something else",
    "typos": "the main input is full of mistakes and abbreviations",
    "several": "the main input asks for several unrelated things at once",
    "unusual": "the main input has unusual characters, numbers or formats",
}
ATTACKS = {
    "weakness": "what the prompt is weak in, by its last run",
    "injection": "an input that holds instructions to the model, in plain sight or hidden",
    "jailbreak": "an input that talks the model out of its rules: a role, a story, a pretext",
    "leak": "an input that asks for the prompt, for data of others, or for internal rules",
    "language": "an input in an unexpected language, a mix of several, or another script",
    "boundary": "empty, huge and odd values of each input; needs no model",
}
"""What adversarial cases try."""
_UNBOUND = frozenset({"empty", "long", "off-topic", "unusual"})
"""Edges whose length or language may differ from what the order wants."""


@dataclass(frozen=True, slots=True)
class CaseSlot:
    """The properties of one case; an empty text leaves a property to the model."""

    number: int
    difficulty: int | None = None
    type: str = ""
    topic: str = ""
    language: str = ""
    length: str = ""
    edge: str = ""
    tag: str = ""
    entity: str = ""
    ambiguity: str = ""
    attack: str = ""
    aim: str = ""
    """The weakness that an attack aims at."""

    @property
    def bound(self) -> bool:
        """Whether length and language have to be those of the order."""
        return self.edge not in _UNBOUND

    def requested(self) -> dict[str, str | int]:
        """Return what a model is asked for."""
        row: dict[str, str | int] = {"slot": self.number}
        if self.difficulty is not None:
            row["difficulty"] = self.difficulty
        words = {
            "type": f"{self.type}: {TYPES[self.type]}" if self.type in TYPES else self.type,
            "topic": self.topic,
            "language": self.language,
            "length": "" if not self.length else f"{span(self.length)}, all inputs together",
            "edge": f"{self.edge}: {EDGES[self.edge]}" if self.edge else "",
            "tag": self.tag,
            "mentions": self.entity,
            "ambiguity": self.ambiguity,
            "attack": self.attack,
            "aim": self.aim,
        }
        return row | {key: text for key, text in words.items() if text}

    def kept(self) -> dict[str, str]:
        """Return what is kept of it in the metadata of the case."""
        words = {
            "type": self.type,
            "topic": self.topic,
            "language": self.language,
            "edge": self.edge,
            "entity": self.entity,
            "ambiguity": self.ambiguity,
            "attack": self.attack.partition(":")[0],
            "aim": self.aim,
        }
        return {key: text for key, text in words.items() if text}


def span(length: str) -> str:
    """Return the number of words of a length bucket, in words."""
    at = SIZES.index(length)
    least = [0, *LENGTHS.values()][at] + 1
    if length not in LENGTHS:
        return f"more than {least - 1:,} words"
    return f"{least if at else 0} to {LENGTHS[length]:,} words"


@dataclass(frozen=True, slots=True)
class CaseOrder:
    """What was ordered."""

    count: int
    hints: str
    seed: int
    diversity: int = 5
    languages: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    difficulties: Mapping[int, float] = field(default_factory=lambda: dict.fromkeys(range(1, 6), 1))
    """The share of each difficulty, of any sum."""

    def check(self) -> None:
        """Raise UsageError if the order is out of range."""
        fewest, most = HINTS
        if not fewest <= len(self.hints) <= most:
            raise UsageError(
                f"the hints have {len(self.hints):,} characters; {fewest} to {most:,} are needed",
                hint="say what the cases are about: --hints TEXT",
            )

    def slots(self) -> list[CaseSlot]:
        """Return a slot for each case."""
        rng = Random(self.seed)
        edges = _edges_of(self.count)
        columns = [
            _shuffled(_shares(self.difficulties, self.count), rng),
            *(
                _spread(values, self.count, rng)
                for values in (self.types, self.topics, self.languages, self.lengths)
            ),
            _shuffled([*_spread([*EDGES], edges, rng), *[""] * (self.count - edges)], rng),
        ]
        return [CaseSlot(n, *row) for n, row in enumerate(zip(*columns, strict=True), start=1)]


def with_edges(open_slots: Sequence[CaseSlot], ordered: int, written: int) -> list[CaseSlot]:
    """Return slots to be asked for again, so that edge cases keep their share of all `ordered`.

    The kind of an edge is another one in each round: of an empty input there is only one. Since
    edge cases are left out more often than others, twice as many are asked for as are missing.
    """
    missing, kinds = _edges_of(ordered) - written, [*EDGES]
    first = sorted(open_slots, key=lambda slot: (not slot.edge, slot.number))
    changed = {}
    for slot in first[: max(2 * missing, 0)]:
        place = kinds.index(slot.edge) + 1 if slot.edge else slot.number
        changed[slot.number] = replace(slot, edge=kinds[place % len(kinds)])
    return [changed.get(slot.number, slot) for slot in open_slots]


def _edges_of(count: int) -> int:
    return -(-count * EDGE_PERCENT // 100)


def _shares(weights: Mapping[int, float], count: int) -> list[int]:
    """Return values in these shares, the largest remainders rounded up."""
    total = sum(weights.values())
    exact = {value: count * weight / total for value, weight in weights.items()}
    whole = [value for value, n in exact.items() for _ in range(int(n))]
    rest = sorted(exact, key=lambda value: (int(exact[value]) - exact[value], value))
    return [*whole, *rest[: count - len(whole)]]


def _spread(values: Sequence[str], count: int, rng: Random) -> list[str]:
    """Return each value equally often, in random order."""
    if not values:
        return [""] * count
    return _shuffled([values[n % len(values)] for n in range(count)], rng)


def _shuffled(values: list, rng: Random) -> list:  # type: ignore[type-arg]
    rng.shuffle(values)
    return values


_BATCH = {"XS": 10, "S": 10, "M": 8, "L": 3, "XL": 1, "": 8}


def batches(
    slots: Sequence[CaseSlot], rooms: Sequence[float]
) -> Iterator[tuple[int, list[CaseSlot]]]:
    """Yield groups of slots for one reply each, with the number of the writer.

    `rooms` has the most tokens of a reply of each writer.
    """
    groups: dict[tuple[int, str], list[CaseSlot]] = {}
    for slot in slots:
        groups.setdefault((slot.number % len(rooms), slot.length), []).append(slot)
    for (writer, length), group in groups.items():
        first = reply_tokens(group[:1])
        more = reply_tokens(group[:2]) - first
        fitting = 1 + (rooms[writer] - first) // more if more else 1
        size = int(max(min(fitting, _BATCH[length]), 1))
        for start in range(0, len(group), size):
            yield writer, group[start : start + size]


_TOKENS_A_CASE = 250
_TOKENS_A_REPLY = 500
_LONGEST_WORDS = {**LENGTHS, "XL": 1_800, "": 150}


def reply_tokens(slots: Sequence[CaseSlot]) -> int:
    """Return the most tokens that a reply with these cases needs."""
    texts = sum(2 * _LONGEST_WORDS[slot.length] + _TOKENS_A_CASE for slot in slots)
    return texts + _TOKENS_A_REPLY


class Weak(NamedTuple):
    """A part of the grade, or of the cases, with a low score."""

    words: str
    score: float


_WEAKEST = 2
_FEWEST = 3
"""Cases that a slice must have to count."""
_STRONG = 0.95
"""A part with at least this score is not weak."""


def weakest_parts(
    project: Project, experiment: Experiment, run_id: str | None, *, needed: bool
) -> list[Weak]:
    """Return what a run, by default the last one, was weak in; nothing without a run.

    Raises UsageError where there is no run and the weak parts are `needed`.
    """
    if not (project.root / project.file.results).exists():
        if needed:
            raise UsageError("there is no run", hint="begin with: edison run")
        return []
    with stored_runs.open_runs(project) as runs:
        try:
            run = runs.find(run_id or experiment.id)
        except UsageError:
            if needed:
                raise
            return []
        if run.experiment != experiment.id:
            raise UsageError(f"{run.id} is a run of {run.experiment}", hint="name another: --run")
        return _weak_parts(runs.connection, run.id)


def _weak_parts(reader: sqlite3.Connection, run_id: str) -> list[Weak]:
    """Return the lowest criteria, checks and graders of a run, and the lowest slices."""
    graded = [
        Weak(f"{kind} {name}", score)
        for name, kind, score in weaknesses.WeakAnswers(reader, run_id).means()
    ]
    parts = list[Weak]()
    for part in slices.breakdown_of(reader, run_id).slices:
        whole = not part.prompt and not part.model
        if whole and part.cases >= _FEWEST and part.composite.estimate is not None:
            parts.append(Weak(f"cases of {part.dimension} {part.value}", part.composite.estimate))
    return [*_low(graded), *_low(parts)]


def _low(parts: Sequence[Weak]) -> list[Weak]:
    low = [part for part in sorted(parts, key=lambda part: part.score) if part.score < _STRONG]
    return low[:_WEAKEST]


def attack_slots(
    count: int, attacks: Sequence[str], weak: Sequence[Weak], seed: int
) -> list[CaseSlot]:
    """Return a slot for each case that a model writes, the attacks in equal shares."""
    named = [name for name in attacks if name != "boundary" and (name != "weakness" or weak)]
    if not named:
        return []
    rng = Random(seed)
    slots = []
    for number in range(count):
        turn, place = divmod(number, len(named))
        name = named[place]
        aim = weak[turn % len(weak)].words if name == "weakness" else ""
        attack = f"{name}: {ATTACKS[name]}"
        slots.append(CaseSlot(number + 1, rng.choice((3, 4, 5)), attack=attack, aim=aim))
    return slots


def gap_slots(coverage: Coverage, most: int) -> list[CaseSlot]:
    """Return the fewest slots that fill all gaps, at most `most`.

    A length that the inputs cannot have would take the other gaps of its slot with it, so lengths
    have separate slots.
    """
    gaps = {
        dimension.name: [value for value, n in dimension.missing.items() for _ in range(n)]
        for dimension in coverage.dimensions
    }
    names = ("tags", "entities", "ambiguity", "languages", "difficulty")
    rows = [
        {"tag": tag, "entity": entity, "ambiguity": ambiguity, "language": language, "level": level}
        for tag, entity, ambiguity, language, level in zip_longest(
            *(gaps.get(name, []) for name in names), fillvalue=""
        )
    ]
    rows += [{"length": length} for length in gaps.get("lengths", [])]
    slots = []
    for number, row in enumerate(rows[:most], start=1):
        level = row.pop("level", "")
        slots.append(CaseSlot(number, int(level) if level else None, **row))
    return slots
