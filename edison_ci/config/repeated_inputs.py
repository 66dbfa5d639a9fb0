"""Repeated inputs: cases that a prompt sends to the model as the same text, under several ids.

Their answers are not independent, so they form a cluster, whatever their ids. Equal is what is
equal under every prompt; expected answers, tags and variables that no prompt uses do not matter. A
declared cluster that shares an input with another one is joined with it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from edison_ci.config.cases import HashIndex
from edison_ci.numeric import counted
from edison_ci.records import canonical_json
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from edison_ci.config.load import Experiment
    from edison_ci.config.prompt import Prompt
    from edison_ci.errors import Problem
    from edison_ci.records import Case

    Texts: TypeAlias = tuple[str, ...]
    """The messages of a prompt for a case."""
    Node: TypeAlias = str | tuple[str]
    """The id of a case, or the name of a declared cluster in a tuple."""

_INPUT = "input of "
"""Prefix of the names of clusters that are not declared; the id of the first case follows."""
_NAMED = 3


class RepeatedInputs:
    """Finds the clusters of cases that are added one by one; keeps hashes, ids and no texts."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self._prompts = prompts
        self.cases = 0
        self._inputs = HashIndex()
        self._names, self._ends = bytearray(), array("Q")
        """Where each input was first seen: the texts of the nodes one after the other."""
        self._nodes: dict[str, Node] = {}
        """Nodes of the cases that are in a cluster, by id."""
        self._parents: dict[Node, Node] = {}
        """A forest: nodes of one tree are one cluster."""

    def add(self, case: Case) -> list[Texts | None]:
        """Add a case, which may join it with earlier ones.

        Returns the texts of each prompt for it; None where it cannot be rendered.
        """
        self.cases += 1
        rendered = [_rendered(prompt, case) for prompt in self._prompts]
        # 64 bits: in a million cases two inputs are mistaken for one with a chance of 1 in 10^7.
        # A case that is skipped is like no other.
        skipped = ("", canonical_json(dict(case.inputs))) if None in rendered else ()
        self._join(case, hash(tuple(skipped if texts is None else texts for texts in rendered)))
        return rendered

    def _join(self, case: Case, input_hash: int) -> None:
        """Join a case with the earlier ones of the same input or declared cluster."""
        node: Node = case.id if case.cluster is None else (case.cluster,)
        number = self._inputs.add(input_hash)
        if number == len(self._ends):
            self._remember(node)
            first = node
        else:
            first = self._node(number)
        if case.cluster is not None:
            self._nodes[case.id] = node
        if first == node:
            return
        self._nodes[case.id] = node
        if isinstance(first, str):
            self._nodes[first] = first
        root, own = self._root(first), self._root(node)
        if root != own:
            self._parents[own] = root

    def _remember(self, node: Node) -> None:
        text = f"-{node}" if isinstance(node, str) else f"+{node[0]}"
        self._names += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._names))

    def _node(self, number: int) -> Node:
        start = self._ends[number - 1] if number else 0
        text = self._names[start : self._ends[number]].decode("utf-8", "surrogatepass")
        return text[1:] if text.startswith("-") else (text[1:],)

    def _root(self, node: Node) -> Node:
        while (parent := self._parents.get(node)) is not None:
            above = self._parents.get(parent)
            if above is not None:
                self._parents[node] = above  # paths stay short
            node = parent
        return node

    @property
    def inputs(self) -> int:
        """How many different inputs there are."""
        return len(self._inputs)

    def clusters(self) -> dict[str, str]:
        """Return the cluster of each case that has one, declared or not."""
        declared: dict[Node, set[str]] = defaultdict(set)
        for node in self._nodes.values():
            if isinstance(node, tuple):
                declared[self._root(node)].add(node[0])
        clusters = {}
        for case, node in self._nodes.items():
            root = self._root(node)
            clusters[case] = _name(declared[root]) if root in declared else f"{_INPUT}{root}"
        return clusters

    def sentences(self) -> list[str]:
        """Return how many cases count, if some have the same input."""
        if self.inputs == self.cases:
            return []
        clusters = self.clusters()
        alone = self.cases - len(clusters)
        return [_counts(self.cases, alone + len(set(clusters.values())), clusters.values())]

    def warnings(self, experiment: Experiment) -> list[Problem]:
        """Return a warning if cases of an experiment have the same input."""
        if self.inputs == self.cases:
            return []
        message = f"{input_counts(self.cases, self.inputs)}: cases with the same input count as one"
        hint = "vary the inputs; to ask the same again, set repeats"
        if self.inputs == 1:
            message = f"all {self.cases:,} cases have the same input and count as one"
            hint = "use a variable of the dataset in the prompt"
        place = "dataset" if experiment.file.dataset is not None else "datasets"
        return [experiment.document.warning((place,), "repeated-input", message, hint)]


def _rendered(prompt: Prompt, case: Case) -> Texts | None:
    try:
        return tuple(message.content for message in prompt.render(case.inputs))
    except (MissingValueError, RenderError):
        return None


def _name(declared: Iterable[str]) -> str:
    """Return the name of a cluster that joins declared ones."""
    names = sorted(declared)
    if len(names) <= _NAMED:
        return " + ".join(names)
    return f"{names[0]} + {len(names) - 1:,} others"


def input_counts(cases: int, inputs: int) -> str:
    """Return how many cases and different inputs there are."""
    return f"{counted(cases, 'case')}, {counted(inputs, 'different input')}"


def repetition_sentence(cases: Collection[str], clusters: Mapping[str, str]) -> str:
    """Return how many of the cases count, if some have the same input; '' if none has."""
    named = [clusters[case] for case in cases if case in clusters]
    units = len(cases) - len(named) + len(set(named))
    if units == len(cases) or not any(name.startswith(_INPUT) for name in named):
        return ""
    return f"{_counts(len(cases), units, named)}."


def _counts(cases: int, units: int, clusters: Collection[str]) -> str:
    counts = input_counts(cases, units)
    if not all(name.startswith(_INPUT) for name in clusters):
        counts = f"{cases:,} cases in {counted(units, 'cluster')} of declared or same inputs"
    return f"{counts}: n is {units:,}"
