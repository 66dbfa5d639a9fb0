"""What our checks and importers say beside the tools that they are held to; writes the page of it.

    python -m benchmarks.references [--seed 1] [--python PYTHON] [--suite DIR] [--treebank DIR]
        [--refusals DIR] [--examples DIR] [--prompt-files DIR]

The facts are recorded in docs/benchmarks/references.json, and the page is made of them. Each option
names a reference that is not part of this repository; its facts are measured anew, and those of
references that are not named stay as they were recorded, with their day:

    --python        a Python with rouge-score, lxml, autoevals and google-adk
    --suite         a checkout of JSON-Schema-Test-Suite
    --treebank      a checkout of UD_English-EWT
    --refusals      the folder of XSTest with the answers of five models and their labels
    --examples      the folder `examples` of promptfoo
    --prompt-files  a folder with .prompt.yml files
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.agreement import (
    Fact,
    measure_elsewhere,
    measure_here,
    measure_refusals,
    measure_schemas,
    measure_sentences,
)
from edison_ci.errors import EdisonError
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.output import find_target, import_name, plan_import
from edison_ci.features.importing.prompt_yml import import_prompt_yml, import_stem
from edison_ci.features.importing.promptfoo import import_promptfoo
from edison_ci.numeric import percent
from tests.features.importing.test_verdicts import ANSWERS, RECORDED, TESTS, Imported
from tests.features.importing.verdicts import STORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from edison_ci.features.importing.output import ImportResult, TargetProject

FACTS = Path(__file__).parent.parent / "docs/benchmarks/references.json"
PAGE = FACTS.with_suffix(".md")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is made of promptfoo's assertions of one type, and how often the verdict is the same."""

    type: str
    tests: int
    mapped: int
    mapped_same: int
    """Of the verdicts on tests that are called mapped."""
    mapped_of: int
    other_same: int
    other_of: int
    on: str


@dataclass(frozen=True, slots=True)
class Files:
    """What became of the configurations of another tool."""

    source: str
    mapped: int
    """All keys mean the same."""
    approximated: int
    partial: int
    """Some keys are left out."""
    refused: int
    crashed: int
    on: str

    @property
    def count(self) -> int:
        return self.mapped + self.approximated + self.partial + self.refused + self.crashed


@dataclass(frozen=True, slots=True)
class Record:
    """All facts."""

    promptfoo: str
    """The version that gave the verdicts."""
    answers: int
    checks: tuple[Fact, ...]
    verdicts: tuple[Verdicts, ...]
    files: tuple[Files, ...]


def read() -> Record:
    """Return the facts that are recorded."""
    told = json.loads(FACTS.read_text("utf-8"))
    return Record(
        told["promptfoo"],
        told["answers"],
        tuple(Fact(**each) for each in told["checks"]),
        tuple(Verdicts(**each) for each in told["verdicts"]),
        tuple(Files(**each) for each in told["files"]),
    )


def write(record: Record) -> None:
    """Store the facts, one in a line."""
    parts = []
    for name, value in asdict(record).items():
        if isinstance(value, tuple):
            lines = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in value)
            parts.append(f'"{name}": [\n{lines}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    FACTS.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")


# --- importers ------------------------------------------------------------------------------------


def measure_verdicts() -> tuple[Verdicts, ...]:
    """Import every recorded test, and compare its verdicts with those of promptfoo."""
    tests: Counter[str] = Counter()
    mapped: Counter[str] = Counter()
    same: Counter[tuple[str, bool]] = Counter()
    asked: Counter[tuple[str, bool]] = Counter()
    for test, line in zip(TESTS, RECORDED, strict=True):
        kind = _kind(test)
        with tempfile.TemporaryDirectory() as folder:
            imported = Imported(test, Path(folder))
        tests[kind] += 1
        mapped[kind] += imported.mapped
        key = (kind, imported.mapped)
        for text, verdict in zip(ANSWERS, line, strict=True):
            asked[key] += 1
            same[key] += imported.passes(text) is (verdict == "1")
    return tuple(
        Verdicts(
            kind,
            tests[kind],
            mapped[kind],
            same[kind, True],
            asked[kind, True],
            same[kind, False],
            asked[kind, False],
            _today(),
        )
        for kind in sorted(tests)
    )


def _kind(test: dict[str, Any]) -> str:
    if len(test["assert"]) > 1 or "threshold" in test:
        return "several, with weights and threshold"
    kind: str = test["assert"][0]["type"]
    if "transform" in test["assert"][0]:
        return f"{kind} with transform"
    return kind.removeprefix("not-")


def _today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


def measure_files(
    source: str,
    files: Iterable[Path],
    read_file: Callable[[Path, TargetProject], ImportResult],
) -> Files:
    """Import every file into a new project, and count how far it came."""
    became = Counter(_outcome(file, read_file) for file in files)
    return Files(
        source,
        became["mapped"],
        became["approximated"],
        became["partial"],
        became["refused"],
        became["crashed"],
        _today(),
    )


def _outcome(file: Path, read_file: Callable[[Path, TargetProject], ImportResult]) -> str:
    try:
        with tempfile.TemporaryDirectory() as folder:
            target = find_target(Path(folder))
            found = read_file(file, target.setting)
            plan_import(target, [found])
    except EdisonError:
        return "refused"
    except Exception as error:
        print(f"crashed: {file}: {error!r}")
        return "crashed"
    if found.fidelity.count(Status.UNSUPPORTED):
        return "partial"
    return "approximated" if found.fidelity.count(Status.APPROXIMATED) else "mapped"


def measure_examples(folder: Path) -> Files:
    """Import promptfoo's own examples."""
    package = json.loads((folder.parent / "package.json").read_text("utf-8"))

    def one(file: Path, setting: TargetProject) -> ImportResult:
        return import_promptfoo(file, display_folder="", name=import_name(file), setting=setting)

    files = sorted(folder.rglob("promptfooconfig*.y*ml"))
    return measure_files(f"examples of promptfoo {package['version']}", files, one)


def measure_prompt_files(folder: Path) -> Files:
    """Import .prompt.yml files of public repositories."""

    def one(file: Path, setting: TargetProject) -> ImportResult:
        return import_prompt_yml(file, display_folder="", name=import_stem(file), setting=setting)

    files = sorted({*folder.rglob("*.prompt.yml"), *folder.rglob("*.prompt.yaml")})
    return measure_files(".prompt.yml files of public repositories", files, one)


# --- the page -------------------------------------------------------------------------------------


def page(record: Record) -> str:
    """Return the page of the facts."""
    mapped = sum(each.mapped_of for each in record.verdicts)
    same = sum(each.mapped_same for each in record.verdicts)
    lines = [
        "# Beside the references",
        "",
        "`python -m benchmarks.references` measures what follows and writes this page, from facts",
        "that are recorded in `references.json`. Texts of others are not part of this repository.",
        "",
        "## Checks",
        "",
        "How often a [check](../checks.md) says what its reference says of the same input. Checks",
        "that are the reference's own code, or have none, are left out.",
        "",
        *_table(
            ("check", "reference", "inputs", "same", "remark", "measured"),
            [
                (
                    f"`{each.check}`",
                    each.reference,
                    each.inputs,
                    f"{each.same:,} of {each.of:,} ({_share(each.same, each.of)})",
                    each.remark,
                    each.on,
                )
                for each in record.checks
            ],
        ),
        "",
        "## Assertions of promptfoo",
        "",
        f"Verdicts of promptfoo {record.promptfoo} on {record.answers} answers for each test,",
        "beside those of the checks that the [import](../importing.md) writes. A test is called",
        f"mapped only if all its verdicts are the same: {same:,} of {mapped:,} are. Of the other",
        "tests the report of the import says that they are approximated or left out, and why.",
        "",
        *_table(
            ("assertion", "tests", "mapped", "same if mapped", "same if not mapped", "measured"),
            [
                (
                    each.type if " " in each.type else f"`{each.type}`",
                    f"{each.tests}",
                    f"{each.mapped}",
                    _of(each.mapped_same, each.mapped_of),
                    _of(each.other_same, each.other_of),
                    each.on,
                )
                for each in record.verdicts
            ],
        ),
        "",
        "## Configurations of others",
        "",
        "*mapped*: every key means the same here; *approximated*: some nearly the same; *in",
        "part*: some keys are left out, and named; *refused*: nothing is written, and it is said",
        "why.",
        "",
        *_table(
            (
                "files",
                "number",
                "mapped",
                "approximated",
                "in part",
                "refused",
                "crashed",
                "measured",
            ),
            [
                (
                    each.source,
                    f"{each.count}",
                    *(
                        f"{number} ({_share(number, each.count)})"
                        for number in (
                            each.mapped,
                            each.approximated,
                            each.partial,
                            each.refused,
                            each.crashed,
                        )
                    ),
                    each.on,
                )
                for each in record.files
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _of(same: int, of: int) -> str:
    return f"{same:,} of {of:,}" if of else "none"


def _share(same: int, of: int) -> str:
    return "100%" if same == of else percent(same / of, 1)


def main() -> None:
    """Measure what can be measured, and write the record and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python")
    for name in ("suite", "treebank", "refusals", "examples", "prompt-files"):
        parser.add_argument(f"--{name}", type=Path)
    args = parser.parse_args()
    facts = measure_here(args.seed)
    if args.python:
        facts += measure_elsewhere(args.seed, args.python)
    for given, measure in (
        (args.suite, measure_schemas),
        (args.treebank, measure_sentences),
        (args.refusals, measure_refusals),
    ):
        facts += measure(given) if given else []
    files = []
    if args.examples:
        files.append(measure_examples(args.examples))
    if args.prompt_files:
        files.append(measure_prompt_files(args.prompt_files))
    if FACTS.exists():
        before = read()
        measured = {each.check for each in facts} | {each.source for each in files}
        facts += [each for each in before.checks if each.check not in measured]
        files += [each for each in before.files if each.source not in measured]
    record = Record(
        json.loads(STORED.read_text("utf-8"))["promptfoo"],
        len(ANSWERS),
        tuple(sorted(facts, key=lambda each: each.check)),
        measure_verdicts(),
        tuple(sorted(files, key=lambda each: each.source)),
    )
    write(record)
    PAGE.write_text(page(record), "utf-8")
    print(page(record), end="")


if __name__ == "__main__":
    main()
