"""Cases from the tests, tables and scenarios of a promptfoo configuration."""

from __future__ import annotations

import fnmatch
import math
import re
from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.marks import Document, Fault, Mark
from edison_ci.documents.yaml_text import read_beside
from edison_ci.features.importing.asserts import CHECKS, UNSUPPORTED_TYPES
from edison_ci.features.importing.drafts import CaseDraft, Scope, mean_of, report_joined_metrics
from edison_ci.features.importing.fidelity import Node
from edison_ci.features.importing.prompts import KINDS
from edison_ci.features.importing.source import CODE_NOTE, UnusableReference
from edison_ci.features.importing.templates import (
    MOST_CASES,
    Variables,
    combinations,
    render_text,
    variable_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.documents.csv_text import CsvRow
    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.asserts import AssertionReader
    from edison_ci.features.importing.drafts import GradeComponent, ModelDraft, PromptDraft
    from edison_ci.features.importing.fidelity import Fidelity
    from edison_ci.features.importing.source import Source


_TYPES = {*CHECKS, *KINDS, *UNSUPPORTED_TYPES, "moderation", "select-best"}
_ASSERTION = re.compile(
    r"(?P<type>(?:not-)?[a-z][a-z0-9-]*)(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>.*))?\Z",
    re.DOTALL,
)
_CODE = {"fn": "javascript", "eval": "javascript", "javascript": "javascript", "python": "python"}
_EXPECTED = re.compile(r"__expected(\d*)\Z")
_CONFIG = re.compile(r"__config:__expected(\d*):(\w+)\Z")


@dataclass(slots=True)
class RowTest:
    """A row of a table as a test."""

    node: Node
    """The row; its value is the map of plain columns."""
    asserts: list[Node] = field(default_factory=list)
    description: str = ""
    prefix: str = ""
    suffix: str = ""
    threshold: float | None = None
    metadata: dict[str, Json] = field(default_factory=dict)


def read_table(source: Source, path: str) -> list[RowTest]:
    """Return the rows of a CSV file as tests; a row of a wrong width is reported."""
    header, rows = source.table(path)
    marks = [_mark(row, header) for row in rows]
    value: list[Json] = [dict(zip(header, row.fields, strict=False)) for row in rows]
    document = Document(source.display_folder + path, value, Mark(0, 0, 0, 0, marks))
    tests = []
    for index, row in enumerate(rows):
        node = Node(document, (index,), value[index])
        if row.fault is not None:
            source.fidelity.add_unsupported(node, f"{row.fault.message} ({row.fault.hint})")
        else:
            tests.append(_test(node, source))
    return tests


def _mark(row: CsvRow, header: list[str]) -> Mark:
    children = {}
    for index, name in enumerate(header):
        line, column = row.place(index)
        children[name] = Mark(line, column, line, column, None)
    return Mark(row.line, 0, row.line, 0, children)


def _test(node: Node, source: Source) -> RowTest:
    assert isinstance(node.value, dict)
    plain = {k: v for k, v in node.value.items() if not k.startswith("__")}
    test = RowTest(Node(node.document, node.path, dict(plain)))
    config = {
        (row_test[1], row_test[2]): str(cell)
        for name, cell in node.value.items()
        if (row_test := _CONFIG.match(name)) and str(cell).strip()
    }
    for name, cell in node.value.items():
        text = str(cell)
        if name.startswith("__") and text.strip() and not _CONFIG.match(name):
            _special(test, Node(node.document, (*node.path, name), text), config, source)
    return test


def _special(test: RowTest, cell: Node, config: dict[tuple[str, str], str], source: Source) -> None:
    name, text = cell.name, str(cell.value)
    expected = _EXPECTED.match(name)
    if expected is not None:
        assertion = parse_assertion(text)
        for (number, key), value in config.items():
            if number in ("", expected[1]) and key in ("threshold", "weight", "metric"):
                assertion[key] = value
        metric = test.node.document.value
        row = metric[int(cell.path[0])] if isinstance(metric, list) else {}
        if isinstance(row, dict) and row.get("__metric"):
            assertion.setdefault("metric", row["__metric"])
        test.asserts.append(Node(cell.document, cell.path, assertion))
    elif name in ("__description", "__prefix", "__suffix"):
        setattr(test, name.strip("_"), text)
        target = "prompts" if name != "__description" else "@datasets"
        source.fidelity.add_mapped(cell, target)
    elif name.startswith("__metadata:"):
        key = name.removeprefix("__metadata:")
        listed = key.endswith("[]")
        pieces = [p.replace("\\,", ",").strip() for p in re.split(r"(?<!\\),", text)]
        test.metadata[key.removesuffix("[]")] = [*pieces] if listed else text
        source.fidelity.add_mapped(cell, "@datasets metadata")
    elif name == "__threshold" and re.fullmatch(r"\d+(?:\.\d+)?", text.strip()):
        test.threshold = float(text)
        source.fidelity.mark_visited(cell)
    elif name == "__metric":
        source.fidelity.add_mapped(cell, "@experiments checks")
    else:
        source.fidelity.add_unsupported(cell, "unknown column")


def parse_assertion(text: str) -> dict[str, Json]:
    """Return the assertion in a cell of __expected; plain text means equals."""
    text = text.strip()
    start = text.partition(":")[0]
    if start in _CODE or text.startswith("file://"):
        return {"type": _CODE.get(start, "javascript"), "value": text.partition(":")[2]}
    if start == "grade":
        return {"type": "llm-rubric", "value": text.partition(":")[2].strip()}
    parts = _ASSERTION.match(text)
    if parts is None or parts["type"].removeprefix("not-") not in _TYPES:
        return {"type": "equals", "value": text}
    assertion: dict[str, Json] = {"type": parts["type"]}
    if parts["value"] is not None and parts["value"].strip():
        assertion["value"] = parts["value"].strip()
    if parts["threshold"] is not None:
        assertion["threshold"] = float(parts["threshold"])
    return assertion


PREFIX, SUFFIX = "prompt_prefix", "prompt_suffix"
"""Variables with the text that a test puts before and after the prompt."""

_ONLY_SESSION = re.compile(
    r"\s*(?:return\s+)?\{\s*\.\.\.vars,\s*sessionId:\s*context\.uuid\s*,?\s*\};?\s*"
)
_TABLES = read_beside(__file__, "promptfoo.yaml")["tests"]


@dataclass(slots=True)
class _Test:
    """A test before its variables are expanded, with defaults and scenario."""

    node: Node
    values: dict[str, list[Json]] = field(default_factory=dict)
    asserts: list[Node] = field(default_factory=list)
    description: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)
    threshold: float | None = None
    threshold_node: Node | None = None
    transform: Node | None = None
    provider: Node | None = None
    providers: Node | None = None
    prompts: Node | None = None
    grader: Node | None = None
    rubric_prompt: Node | None = None
    prefix: str = ""
    suffix: str = ""
    expand: bool = True
    own_asserts_only: bool = False

    def inherit(self, other: _Test) -> _Test:
        """Return this test with the defaults of another one."""
        inherited = {
            name: getattr(self, name) or getattr(other, name) for name in _TABLES["inherited"]
        }
        return replace(
            self,
            values={**other.values, **self.values},
            asserts=[*([] if self.own_asserts_only else other.asserts), *self.asserts],
            metadata={**other.metadata, **self.metadata},
            threshold=other.threshold if self.threshold is None else self.threshold,
            expand=self.expand and other.expand,
            **inherited,
        )


@dataclass(slots=True)
class Suite:
    """Converts tests to cases."""

    source: Source
    asserts: AssertionReader
    models: list[ModelDraft]
    prompts: list[PromptDraft]
    drafts: list[CaseDraft] = field(default_factory=list)
    for_graders: list[Node] = field(default_factory=list)
    """Options that are used by graders only."""
    _default: _Test | None = None
    _number: int = 0

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def default(self, node: Node) -> None:
        """Read the defaults of all tests."""
        if (target := self.source.follow(node)) is not None:
            self._default = self._read(target)

    def tests(self, node: Node) -> None:
        """Read tests: a list, a file, or a list of files."""
        for test in self._read_tests(node):
            self._add(test)

    def add_default_case(self, node: Node) -> None:
        """Add the single case of a configuration without tests."""
        self._add(_Test(node))

    def scenarios(self, node: Node) -> None:
        """Read scenarios: each set of variables with each test."""
        for scenario in self._flatten(node):
            target = self.source.follow(scenario)
            if target is None:
                continue
            self._fidelity.mark_visited(target)
            sets, tests = target.get("config"), target.get("tests")
            named: dict[str, Json] = {}
            if (about := target.get("description")) is not None:
                named["scenario"] = str(about.value)
                self._fidelity.add_mapped(about, "@datasets metadata.scenario")
            rows = list(self._read_tests(tests)) if tests is not None else []
            for outer in self._read_tests(sets) if sets is not None else []:
                outer.metadata = {**named, **outer.metadata}
                for test in rows:
                    self._add(test.inherit(outer))

    def _flatten(self, node: Node) -> Iterator[Node]:
        target = self.source.follow(node)
        if target is not None and isinstance(target.value, list):
            self._fidelity.mark_visited(target)
            for child in target.children():
                yield from self._flatten(child)
        elif target is not None:
            yield target

    def _read_tests(self, node: Node) -> Iterator[_Test]:
        value = node.value
        if isinstance(value, list):
            self._fidelity.mark_visited(node)
            for child in node.children():
                yield from self._read_tests(child)
        elif isinstance(value, str):
            yield from self._from_files(node, value)
        elif isinstance(value, dict) and ("path" in value and "vars" not in value):
            self._fidelity.add_unsupported(node, CODE_NOTE)
        elif isinstance(value, dict) and (held := node.get("$values") or node.get("$expand")):
            self._fidelity.mark_visited(node)
            yield from self._read_tests(held)
        else:
            target = self.source.follow(node)
            if target is not None and isinstance(target.value, list):
                yield from self._read_tests(target)
            elif target is not None and isinstance(target.value, dict):
                yield self._read(target)
            elif target is not None:
                self._fidelity.add_unsupported(target, "a test must be a map")

    def _from_files(self, node: Node, reference: str) -> Iterator[_Test]:
        if "://" in reference and not reference.startswith("file://"):
            note = "imports do not use the network; save the tests as a CSV or JSONL file"
            self._fidelity.add_unsupported(node, note)
            return
        try:
            paths = self.source.paths(reference)
            tests = [test for path in paths for test in self._read_file(path)]
        except UnusableReference as refused:
            self._fidelity.add_unsupported(node, str(refused))
            return
        except Fault as fault:
            self._fidelity.add_unsupported(node, f"{fault.message} ({fault.hint})")
            return
        if tests:
            self._fidelity.add_mapped(node, "@datasets")
        else:
            self._fidelity.mark_visited(node)
        yield from tests

    def _read_file(self, path: str) -> list[_Test]:
        if path.endswith(".csv"):
            return [self._row(row) for row in read_table(self.source, path)]
        if path.endswith((".yaml", ".yml", ".json", ".jsonl")):
            return list(self._read_tests(self.source.document(path)))
        raise UnusableReference("tests are read from .csv, .json, .jsonl and .yaml files")

    def _row(self, row: RowTest) -> _Test:
        assert isinstance(row.node.value, dict)
        values = {variable_name(name): [value] for name, value in row.node.value.items()}
        self._fidelity.add_mapped(row.node, "@datasets")
        return _Test(
            row.node,
            values,
            row.asserts,
            row.description,
            row.metadata,
            row.threshold,
            prefix=row.prefix,
            suffix=row.suffix,
        )

    def _read(self, node: Node) -> _Test:
        self._fidelity.mark_visited(node)
        test = _Test(node, Variables(self.source).read(node.get("vars")))
        if (asserts := node.get("assert")) is not None:
            test.asserts.append(asserts)
        if (description := node.get("description")) is not None:
            test.description = str(description.value)
            self._fidelity.add_mapped(description, "@datasets id and metadata.description")
        if (metadata := node.get("metadata")) is not None and isinstance(metadata.value, dict):
            test.metadata = dict(metadata.value)
            self._fidelity.add_mapped(metadata, "@datasets metadata")
        threshold = node.get("threshold")
        if threshold is not None and isinstance(threshold.value, int | float):
            test.threshold = float(threshold.value)
            test.threshold_node = threshold
            self._fidelity.mark_visited(threshold)
        test.provider, test.providers = node.get("provider"), node.get("providers")
        test.prompts = node.get("prompts")
        if (options := node.get("options")) is not None:
            self._options(options, test)
        for child in node.children():
            if child.name not in _TABLES["keys"]:
                self._fidelity.add_unsupported(child, "unknown key of a test")
        return test

    def _options(self, node: Node, test: _Test) -> None:
        self._fidelity.mark_visited(node)
        for child in node.children():
            name, value = child.name, child.value
            if name == "transformVars" and _ONLY_SESSION.fullmatch(str(value)):
                note = "no conversation is continued: each case is a new one"
                self._fidelity.add_approximated(child, "", note)
            elif name == "transformVars":
                self._fidelity.add_unsupported(child, f"variables stay as they are: {CODE_NOTE}")
            elif name in ("transform", "postprocess"):
                test.transform = child
                note = "see the assertions of the test"
                self._fidelity.add_approximated(child, "@experiments checks", note)
            elif name == "provider":
                test.grader = child
                self.for_graders.append(child)
            elif name == "rubricPrompt":
                test.rubric_prompt = child
                self.for_graders.append(child)
            elif name in ("prefix", "suffix") and isinstance(value, str):
                setattr(test, name, value)
                self._fidelity.add_mapped(child, "prompts")
            elif name == "disableVarExpansion":
                test.expand = value is not True
                self._fidelity.add_mapped(child, "@datasets")
            elif name == "disableDefaultAsserts":
                test.own_asserts_only = value is True
                self._fidelity.add_mapped(child, "@experiments")
            else:
                note = _TABLES["without_effect"].get(name, "unknown option")
                self._fidelity.add_unsupported(child, note)

    def _add(self, test: _Test) -> None:
        named = test.node.get("vars")
        if named is not None and isinstance(named.value, str) and not test.values:
            note = "the test was left out: its variables could not be read"
            self._fidelity.add_unsupported(test.node, note)
            return
        whole = test.inherit(self._default) if self._default is not None else test
        cases = math.prod(len(listed) for listed in whole.values.values()) if whole.expand else 1
        if len(self.drafts) + cases > MOST_CASES:
            note = f"it would exceed the limit of {MOST_CASES:,} cases"
            self._fidelity.add_unsupported(whole.node, note)
            return
        models, prompts = self._chosen_models(whole), self._chosen_prompts(whole.prompts)
        components: list[GradeComponent] | None = None
        self._number += 1
        for values in combinations(whole.values, expand=whole.expand):
            if components is None:
                scope = Scope(values.keys(), whole.grader, whole.rubric_prompt, whole.transform)
                components = self._with_threshold(
                    whole,
                    [
                        component
                        for node in whole.asserts
                        for component in self.asserts.read(node, scope)
                    ],
                )
            for name, text in ((PREFIX, whole.prefix), (SUFFIX, whole.suffix)):
                if text:
                    values[name] = render_text(text, values)
            description = render_text(whole.description, values)
            self.drafts.append(
                CaseDraft(
                    whole.node,
                    values,
                    description,
                    whole.metadata,
                    components,
                    models,
                    prompts,
                    bool(whole.asserts) and not components,
                    number=self._number,
                )
            )

    def _with_threshold(
        self, test: _Test, components: list[GradeComponent]
    ) -> list[GradeComponent]:
        """Return components of which the weighted mean must reach the threshold of the test."""
        node = test.threshold_node
        if test.threshold is None:
            self._report_shared_metrics(components)
            return components
        if any(component.kind != "check" for component in components):
            if node is not None:
                note = "each check and grader must pass: a mean of both is not supported"
                self._fidelity.add_approximated(node, "", note)
            return components
        if node is not None:
            self._fidelity.add_mapped(node, "@experiments checks mean_of")
        if not components:
            return components
        report_joined_metrics(components, self._fidelity)
        whole = mean_of(components, test.threshold, {})
        return [replace(whole, node=components[0].node)]

    def _report_shared_metrics(self, components: list[GradeComponent]) -> None:
        """Report metrics that several assertions of a test have."""
        names = Counter(dict(component.settings).get("name") for component in components)
        for component in components:
            metric = component.node.get("metric") if component.node is not None else None
            if metric is not None and names[dict(component.settings).get("name")] > 1:
                note = "promptfoo has one mean of its assertions; here each has its own score"
                self._fidelity.add_approximated(metric, "", note)

    def _chosen_models(self, test: _Test) -> tuple[str, ...]:
        everything = tuple(model.name for model in self.models)
        if test.provider is not None:
            target = self.source.follow(test.provider)
            model = self.asserts.providers.read_one(target) if target is not None else None
            return (model.name,) if model is not None else everything
        if test.providers is None:
            return everything
        labels = {model.name: model.ids for model in self.models}
        return self._matching(test.providers, labels, "provider") or everything

    def _chosen_prompts(self, node: Node | None) -> tuple[str, ...] | None:
        if node is None:
            return None
        return self._matching(node, {p.id: p.labels for p in self.prompts}, "prompt")

    def _matching(
        self, node: Node, labels: dict[str, tuple[str, ...]], what: str
    ) -> tuple[str, ...] | None:
        selected = node.value if isinstance(node.value, list) else [node.value]
        names = match_labels(map(str, selected), labels)
        if not names:
            self._fidelity.add_unsupported(
                node, f"no {what} has this name; the test runs with all of them"
            )
            return None
        self._fidelity.add_mapped(node, "@experiments", "a separate experiment for each selection")
        return names


def match_labels(selected: Iterable[str], labels: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names with a label that matches one of the selected patterns."""
    patterns = [pattern for text in selected for pattern in (text, f"{text}:*")]
    return tuple(
        name
        for name, own_labels in labels.items()
        if any(fnmatch.fnmatchcase(label, pattern) for label in own_labels for pattern in patterns)
    )
