"""Packages that bring a provider, a check, a judge, a reporter and a feature, used end to end.

The package is the one of docs/extending.md, installed by pip and used by processes of their own.
Broken ones are laid out as pip would leave them, which takes no time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import edison_ci
from docs.snippets import snippets
from edison_ci import SessionFactory, feature, load, render_report, run
from edison_ci.checks.options import REGISTRY
from edison_ci.config.experiment import JUDGES
from edison_ci.config.model_entry import PROVIDERS
from edison_ci.errors import UsageError
from edison_ci.report.reporters import REPORTERS
from tests.conftest import MINIMAL, ROOT, Folder
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.conftest import Edison

pytestmark = pytest.mark.daily

BLOCKS = {each.title: each.text for each in snippets(ROOT / "docs/extending.md") if each.title}
GROUPS = ("providers", "checks", "judges", "reporters")
FILES = 7
"""One for each of them, and three of the feature."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package of the documentation into a folder."""
    source, target = tmp_path_factory.mktemp("edison-acme"), tmp_path_factory.mktemp("site")
    files = {name: text for name, text in BLOCKS.items() if name.startswith("edison_acme/")}
    assert len(files) == FILES
    for name, text in files.items():
        Folder(source).write(name, text)
    Folder(source).write("pyproject.toml", BLOCKS["pyproject.toml"])
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", target)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *map(str, options), str(source)],
        check=True,
        timeout=PATIENCE_S,
    )
    return target


@pytest.fixture
def acme(folder: Folder) -> Folder:
    """A project that uses all of the package, as the documentation shows it."""
    for name, text in {**MINIMAL, **BLOCKS}.items():
        if not name.startswith(("edison_acme", "pyproject")):
            folder.write(name, text)
    return folder


def cells_in(lines: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the cells of a report, by model and case."""
    cells = [json.loads(line) for line in lines.splitlines()]
    return {(cell["model"], cell["case"]): cell for cell in cells}


def component(cell: Mapping[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in cell["components"] if each["name"] == name]
    return dict(found)


@pytest.fixture
def look_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Let this process find the packages of a folder."""
    registries = [vars(each) for each in (REGISTRY, PROVIDERS, JUDGES, REPORTERS)]

    def forget() -> None:
        for name in [name for name in sys.modules if re.match(r"(broken|edison_acme)\b", name)]:
            del sys.modules[name]
        for each in registries:
            each.pop("_installed", None)
        feature._installed.cache_clear()

    def look(site: Path) -> None:
        forget()
        monkeypatch.syspath_prepend(str(site))

    yield look
    forget()


class LayOut(Protocol):
    """Lays out a package `broken` with entry points, by "group/name"."""

    def __call__(self, points: Mapping[str, str], module: str, version: str = ...) -> None: ...


@pytest.fixture
def lay_out(tmp_path: Path, look_in: Callable[[Path], None]) -> LayOut:
    """Lay out a package as pip would, where this process finds it."""

    def lay(points: Mapping[str, str], module: str, version: str = "1.0") -> None:
        site = Folder(tmp_path / "site")
        site.write("broken.py", module)
        listed = "".join(
            f"[edison_ci.{group}]\n{name} = broken:{target}\n"
            for place, target in points.items()
            for group, _, name in [place.partition("/")]
        )
        site.write("broken-1.0.dist-info/entry_points.txt", listed)
        metadata = f"Metadata-Version: 2.1\nName: broken\nVersion: {version}\n"
        site.write("broken-1.0.dist-info/METADATA", metadata)
        look_in(site.path)

    return lay


# --- what works -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_package_brings_a_provider_a_check_a_judge_and_a_reporter(
    acme: Folder, site: Path
) -> None:
    def edison(*args: str) -> str:
        done = acme.edison(*args, env={"PYTHONPATH": str(site)})
        assert done.code == 0, done.all
        return done.out

    assert json.loads(edison("validate", "--strict", "--json"))["problems"] == []
    (run,) = json.loads(edison("run", "--offline", "--json"))["runs"]
    assert (run["status"], run["errors"]) == ("COMPLETED", {})

    cells = cells_in(edison("report", "--format", "jsonl"))
    loud, small = cells["loud", "ada"], cells["small", "ada"]
    answer = "SAY HELLO TO ADA IN ONE FRIENDLY SENTENCE, AND NOTHING ELSE.!!"
    assert loud["text"] == answer
    tokens = len(answer) - len("!!")
    assert (loud["cost_kind"], loud["cost_microusd"]) == ("billed", tokens * 1 + tokens * 2)

    assert component(loud, "loud-enough")["score"] == 1
    assert component(small, "loud-enough")["score"] == 0
    assert re.fullmatch("[0-9]+ small letters", component(small, "loud-enough")["reason"])

    assert f"acme-brevity: {len(answer)} characters" in component(loud, "Warmth")["reason"]
    (told,) = json.loads(edison("status", run["run_id"], "--json"))["runs"]
    assert set(told["judge_agreement"]["judges"]) == {"judge", "acme-brevity"}

    printed = edison("report", "--format", "tsv")
    score = f"{100 * run['composite']['estimate']:.1f}"
    line = f"{run['run_id']}\thello\tskipped\t{score}"
    assert printed == f"run\texperiment\tverdict\tscore\n{line}\n"
    edison("report", "--out", "runs.tsv")  # the ending says the format
    assert acme.read("runs.tsv") == printed


@pytest.mark.nightly
def test_answers_of_a_plugin_are_cached_by_its_options_and_held_by_budgets(
    edison: Edison, acme: Folder, site: Path, look_in: Callable[[Path], None]
) -> None:
    look_in(site)
    flags = ("--model", "loud")
    first = edison(acme, "run", "--budget", "0.000001", *flags)
    assert first.code == 4, "the plugin's price counts"

    def calls() -> tuple[int, int]:
        """Return how many answers and judgments were bought, and how many were stored before."""
        found = json.loads(edison(acme, "run", *flags, "--json").out)["runs"][0]["calls"]
        return found["made"], found["reused"]

    assert calls() == (4, 0)
    assert calls() == (0, 4)
    acme.edit("models.yaml", '"!!"', '"?"')
    assert calls() == (4, 0), "other options, other answers"
    cells = cells_in(edison(acme, "report", "--format", "jsonl").out)
    assert cells["loud", "ada"]["text"].endswith("ELSE.?")


def test_a_feature_of_a_package_has_a_command_and_hears_of_runs(
    edison: Edison,
    acme: Folder,
    site: Path,
    look_in: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_in(site)
    assert re.search(r"^  Results .*\bdigest$", edison(acme, "--help").out, re.MULTILINE)
    done = edison(acme, "run", "--offline")
    (said,) = re.findall("acme: (hello: [0-9.]+)", done.err)
    monkeypatch.chdir(acme.path)
    assert edison(acme, "digest").out == f"{said}\n"

    assert re.fullmatch(r"hello: [0-9]+\.[0-9]{2}", said), "as its section asks for"
    project = load(acme.path)
    assert edison_ci.digest_line(project, "latest") == said

    monkeypatch.setenv(feature.WITHOUT, "edison_acme")
    with pytest.raises(AttributeError, match="digest_line"):
        edison_ci.digest_line(project, "latest")
    assert "acme: " not in edison(acme, "run", "--offline").err
    refused = edison(acme, "digest")
    assert refused.code == 2 and "unknown command 'digest'" in refused.err


def test_the_section_of_a_feature_that_is_not_read_is_kept_and_named(
    edison: Edison,
    acme: Folder,
    site: Path,
    look_in: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plan_hash() -> str:
        planned = json.loads(edison(acme, "plan", "--json").out)["experiments"]
        return str(planned[0]["plan_hash"])

    look_in(site)
    hashes = [plan_hash()]
    monkeypatch.setenv(feature.WITHOUT, "edison_acme")
    hashes.append(plan_hash())
    acme.edit("experiments/hello.yaml", "digits: 2", "digits: two")
    hashes.append(plan_hash())
    assert hashes[0] == hashes[1] != hashes[2], "it counts as it is written"
    done = edison(acme, "validate", "--strict")
    assert (done.code, done.out) == (0, "")
    note = "not read, as their features are off or not installed: features.edison_acme\n"
    assert done.err.count(note) == 1
    told = json.loads(edison(acme, "validate", "--json").out)
    assert (told["ok"], told["unread_sections"]) == (True, ["features.edison_acme"])


@pytest.mark.parametrize(
    ("args", "left"),
    [
        (("--person", "ada"), {"bo"}),
        (("--case", "bo"), {"ada"}),
        (("--case", "bo", "--experiment", "hello"), {"ada"}),
    ],
)
@pytest.mark.parametrize("off", ["", "edison_acme", "edison_acme,monitor,refine"])
def test_a_feature_forgets_what_it_keeps_also_when_it_is_off(
    edison: Edison,
    acme: Folder,
    site: Path,
    look_in: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    left: set[str],
    off: str,
) -> None:
    def kept() -> set[str]:
        lines = acme.read(".edison/features/edison_acme/answers.jsonl").splitlines()
        return {json.loads(line)["case"] for line in lines}

    look_in(site)
    assert edison(acme, "run", "--offline").code == 0
    assert kept() == {"ada", "bo"}
    monkeypatch.setenv(feature.WITHOUT, off)
    shown = edison(acme, "admin", "forget", *args, "--dry-run", "--json")
    number = json.loads(shown.out)["features"]["edison_acme"]
    assert number > 0 and kept() == {"ada", "bo"}
    done = edison(acme, "admin", "forget", *args, "--yes")
    assert (done.code, kept()) == (0, left)
    assert f"removed from files of edison_acme: {number} texts" in done.out


def test_retention_treats_the_files_of_a_feature(
    edison: Edison, acme: Folder, site: Path, look_in: Callable[[Path], None]
) -> None:
    look_in(site)
    assert edison(acme, "run", "--offline").code == 0
    file = ".edison/features/edison_acme/answers.jsonl"
    older = acme.read(file).replace('"created_at": "20', '"created_at": "19')
    acme.write(file, older + acme.read(file))
    lines = len(older.splitlines())
    shown = edison(acme, "admin", "gc", "--dry-run").out
    assert f"would delete {lines} texts of features" in shown
    assert json.loads(edison(acme, "admin", "gc", "--json").out)["of_features"] == lines
    assert len(acme.read(file).splitlines()) == lines


def test_files_of_a_feature_that_is_not_installed_are_listed(edison: Edison, acme: Folder) -> None:
    for name, text in MINIMAL.items():
        acme.write(name, text)
    acme.write(".edison/features/edison_acme/answers.jsonl", "of Ada\n")
    assert edison(acme, "run").code == 0
    done = edison(acme, "admin", "forget", "--person", "Ada", "--yes")
    assert done.code == 0
    told = " ".join(done.err.split())
    assert "of a feature that does not forget: answers.jsonl; delete it by hand" in told
    assert acme.read(".edison/features/edison_acme/answers.jsonl") == "of Ada\n"


PROMISING = """
import sys
from edison_ci.feature import Feature

__path__ = []
sys.modules["broken.parts"] = sys.modules[__name__]
FEATURE = Feature(__name__, **{})


def fail(folder, wish, *, remove):
    raise OSError("no space")
"""


@pytest.mark.parametrize(
    ("promised", "args", "said"),
    [
        (
            {"forget": "none:forget"},
            "admin forget --case ada",
            "broken.none:forget cannot be loaded",
        ),
        (
            {"forget": "parts:fail"},
            "admin forget --case ada",
            "the feature broken does not forget: OSError: no space",
        ),
        ({"sections": {"experiment": "parts:Absent"}}, "validate", "parts:Absent cannot be loaded"),
        ({"sections": {"experiment": "parts:fail"}}, "validate", "no pydantic model"),
    ],
)
def test_a_feature_that_breaks_what_it_promised_is_named(
    edison: Edison, mini: Folder, lay_out: LayOut, promised: Any, args: str, said: str
) -> None:
    assert edison(mini, "run").code == 0
    section = "features: {broken: {}}\n"
    mini.write("experiments/hello.yaml", MINIMAL["experiments/hello.yaml"] + section)
    lay_out({"features/broken": "FEATURE"}, PROMISING.format(promised))
    done = edison(mini, *args.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err and "uninstall" in done.err


def test_names_of_plugins_are_listed_and_hinted_at(
    edison: Edison, acme: Folder, site: Path, look_in: Callable[[Path], None]
) -> None:
    look_in(site)
    assert "|bundle|tsv]" in re.sub(r"\s", "", edison(acme, "report", "--help").out)
    unknown = edison(acme, "report", "--format", "tvs")
    assert unknown.code == 2
    assert "'bundle', 'tsv'" in unknown.err
    schema = json.loads(edison(acme, "admin", "schema", "experiment").out)
    assert "shouted" in schema["definitions"]["Check"]["properties"]
    assert schema["definitions"]["shouted"]["properties"]["allow"]["minimum"] == 0


def test_what_a_package_offers_works_from_python(
    acme: Folder, site: Path, look_in: Callable[[Path], None]
) -> None:
    look_in(site)
    project = load(acme.path)
    (found,) = run(project, factory=SessionFactory(offline=True))
    line = render_report(project, format="tsv").splitlines()[1]
    assert line.startswith(f"{found.run.id}\thello\t")
    assert {part.name for part in found.components} >= {"loud-enough", "tone", "Warmth"}
    with pytest.raises(UsageError, match="there is no format 'tvs'") as caught:
        render_report(project, format="tvs")
    assert caught.value.hint == "did you mean 'tsv'?"


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "models.yaml",
            "provider: acme,",
            "provider: acmee,",
            ("models.yaml:1:18", "provider is 'acmee'", "did you mean 'acme'?"),
        ),
        (
            "models.yaml",
            'ending: "!!"',
            "ending: 5",
            ("models.yaml:1:81", "ending is 5, not a text", "quote it"),
        ),
        (
            "models.yaml",
            "model: loud-1,",
            "model: openai/loud-1, key_env: ACME_KEY,",
            (
                "models.yaml:1:1",
                "model 'loud' would send ACME_KEY to an unknown host",
                "add base_url, then: edison trust add ACME_KEY HOST",
            ),
        ),
        (
            "experiments/hello.yaml",
            "acme-brevity",
            "acme-brevty",
            (
                "experiments/hello.yaml:9:29",
                "unknown model 'acme-brevty'",
                "did you mean 'acme-brevity'?",
            ),
        ),
        (
            "experiments/hello.yaml",
            "digits: 2",
            "digits: two",
            ("experiments/hello.yaml:10:34", "digits is 'two', not a whole number", ""),
        ),
        (
            "experiments/hello.yaml",
            "allow: 3",
            "allow: -3",
            ("experiments/hello.yaml:7:22", "allow is -3; at least 0", ""),
        ),
    ],
)
def test_what_is_wrong_with_the_use_of_a_plugin_has_its_place(
    edison: Edison,
    acme: Folder,
    site: Path,
    look_in: Callable[[Path], None],
    file: str,
    old: str,
    new: str,
    problem: tuple[str, str, str],
) -> None:
    look_in(site)
    acme.edit(file, old, new)
    done = edison(acme, "validate")
    place, message, hint = problem
    below = f"\n    {hint}" if hint else ""
    # A key that is not set is a note of its own.
    errors = done.out.partition(f"\n{place}: note: ")[0].rstrip("\n")
    assert (done.code, errors) == (2, f"{place}: error: {message}{below}")


def test_without_the_package_its_names_are_unknown(edison: Edison, acme: Folder) -> None:
    done = edison(acme, "validate")
    assert done.code == 2
    assert "models.yaml:1:18: error: provider is 'acme'" in done.all
    assert "unknown check 'shouted'" in done.all


# --- what is refused ------------------------------------------------------------------------------

PROVIDER = """
from edison_ci.contracts import CallError, ErrorKind, ProviderPlugin
from edison_ci.records import Completion

class Good(ProviderPlugin):
    async def complete(self, request):
        return Completion("fine")

class NotOne:
    pass

class Unfinished(ProviderPlugin):
    pass

class OddOptions(Good):
    options = {"a": 1}

class Unwilling(Good):
    def __init__(self, settings):
        raise ValueError("no licence")

class Texts(ProviderPlugin):
    async def complete(self, request):
        return "just a text"

class Mistaken(ProviderPlugin):
    async def complete(self, request):
        raise KeyError("choices")
"""


@pytest.mark.parametrize(
    ("points", "code", "said"),
    [
        (
            {"providers/acme": "Good", "providers/openai": "Good"},
            2,
            "the plugin broken:Good has the name 'openai', which is built in",
        ),
        ({"providers/acme": "Missing"}, 2, "broken:Missing for 'acme' cannot be loaded"),
        (
            {"providers/acme": "NotOne"},
            2,
            "'acme' is not a subclass of edison_ci.contracts.ProviderPlugin",
        ),
        ({"providers/acme": "Unfinished"}, 2, "for 'acme' does not define complete"),
        ({"providers/acme": "OddOptions"}, 2, "not a pydantic model"),
        (
            {"providers/acme": "Unwilling"},
            2,
            "the provider acme cannot be set up: ValueError: no licence",
        ),
        ({"providers/acme": "Good"}, 0, "COMPLETED"),
        ({"providers/acme": "Texts"}, 3, "BAD_RESPONSE"),
        ({"providers/acme": "Mistaken"}, 3, "BAD_RESPONSE"),
    ],
)
def test_a_broken_provider_is_refused_or_an_error_of_its_cells(
    edison: Edison, mini: Folder, lay_out: LayOut, points: dict[str, str], code: int, said: str
) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: acme, model: m, price: free}\njudge: {provider: sim, model: judge}\n",
    )
    lay_out(points, PROVIDER)
    done = edison(mini, "run", "--json")
    assert (done.code, said in done.all) == (code, True), done.all
    assert "Traceback" not in done.all


BRINGING = """
from edison_ci.feature import Command, Feature

FEATURE = Feature(__name__, {"greet": Command("Results", "commands:greet", "Greet.")})
NOTHING = None
"""


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("broken", "MISSING", "the plugin broken:MISSING for 'broken' cannot be loaded"),
        ("broken", "NOTHING", "'broken' of edison_ci.features is not the Feature of a package"),
        ("other", "FEATURE", "'other' of edison_ci.features is not the Feature of a package other"),
        ("refine", "FEATURE", "the plugin broken:FEATURE has the name 'refine', which is built in"),
    ],
)
def test_a_broken_feature_is_named_and_can_be_switched_off(
    edison: Edison,
    mini: Folder,
    lay_out: LayOut,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    target: str,
    said: str,
) -> None:
    lay_out({f"features/{name}": target}, BRINGING)
    done = edison(mini, "run")
    assert (done.code, said in done.all) == (2, True), done.all
    if name != "refine":
        monkeypatch.setenv(feature.WITHOUT, name)
        assert edison(mini, "run").code == 0


def test_a_provider_that_needs_a_network_is_refused_offline(
    edison: Edison, mini: Folder, lay_out: LayOut
) -> None:
    mini.edit("models.yaml", "provider: sim, model: small", "provider: acme, model: m, price: free")
    lay_out({"providers/acme": "Good"}, PROVIDER)
    done = edison(mini, "run", "--offline")
    assert done.code == 2
    assert "model 'small' is at an unknown host" in done.err


GRADING = """
from typing import ClassVar

from edison_ci.checks.options import Check
from edison_ci.contracts import CriterionScore, JudgePlugin

class NoEvaluate(Check):
    check: ClassVar[str] = "odd"
    example: ClassVar[str] = "odd: {}"
    main: ClassVar[str | None] = None

class OtherName(NoEvaluate):
    check: ClassVar[str] = "even"

    def evaluate(self, answered):
        raise NotImplementedError

class Unfinished(JudgePlugin):
    pass

class OutOfScale(JudgePlugin):
    async def judge(self, case, answer, criteria):
        return {each.name: CriterionScore(each.max + 1) for each in criteria}

class Unwilling(OutOfScale):
    def __init__(self):
        raise OSError("no weights")

class Mistaken(JudgePlugin):
    async def judge(self, case, answer, criteria):
        return {"Wit": CriterionScore(1)}
"""


@pytest.mark.parametrize(
    ("points", "code", "said"),
    [
        ({"checks/odd": "NoEvaluate"}, 2, "the check 'odd' of broken 1.0 does not define evaluate"),
        ({"checks/odd": "OtherName"}, 2, "the check 'odd' of broken 1.0 calls itself 'even'"),
        (
            {"checks/odd": "NoEvaluate", "checks/contains": "NoEvaluate"},
            2,
            "has the name 'contains', which is built in",
        ),
        ({"judges/odd": "Unfinished"}, 2, "for 'odd' does not define judge"),
        ({"judges/odd": "Unwilling"}, 2, "of broken 1.0 cannot be set up: OSError: no weights"),
        ({"judges/odd": "OutOfScale"}, 3, "not between 0 and 5"),
        ({"judges/odd": "Mistaken"}, 3, "scores 'Wit', which is no criterion of the rubric"),
    ],
)
def test_a_broken_check_or_judge_is_refused_or_an_error_of_its_cells(
    edison: Edison, mini: Folder, lay_out: LayOut, points: dict[str, str], code: int, said: str
) -> None:
    if "checks/odd" in points:
        mini.edit("experiments/hello.yaml", 'contains: "{{ expected }}"', "odd: {}")
    else:
        mini.edit("experiments/hello.yaml", "pointwise: [judge]", "pointwise: [odd]")
    lay_out(points, GRADING)
    done = edison(mini, "run")
    assert done.code == code, done.all
    shown = done.all if code == 2 else edison(mini, "report", "--format", "jsonl").out
    assert said in shown
    assert "Traceback" not in done.all


GOOD = """
class Fine(OtherName):
    check: ClassVar[str] = "fine"

class Kind(JudgePlugin):
    async def judge(self, case, answer, criteria):
        reason = f"{case.inputs['name']} is at ada@example.com"
        return {each.name: CriterionScore(each.max, reason) for each in criteria}
"""


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ('contains: "{{ expected }}"', "fine: {}", True),
        ("pointwise: [judge]", "pointwise: [judge, kind]", True),
        ("models: [small]", "models: [small]", False),
    ],
)
def test_the_version_of_a_package_that_grades_is_part_of_the_plan(
    edison: Edison, mini: Folder, lay_out: LayOut, old: str, new: str, counts: bool
) -> None:
    def planned(version: str) -> str:
        points = {"checks/fine": "Fine", "judges/kind": "Kind"}
        lay_out(points, GRADING + GOOD, version)
        return str(json.loads(edison(mini, "plan", "--json").out)["experiments"][0]["plan_hash"])

    mini.edit("experiments/hello.yaml", old, new)
    assert planned("1.0") == planned("1.0")
    assert (planned("1.0") != planned("1.1")) == counts


LABELS = "".join(
    json.dumps({"case": case, "by": "ann@example.com", "scale": "0-1", "grade": 1, "output": "Hi"})
    + "\n"
    for case in ("ada", "bo")
)


def test_a_judge_of_a_package_is_approved_in_one_version_without_being_paid(
    edison: Edison, mini: Folder, lay_out: LayOut
) -> None:
    rubric = mini.read("rubrics/tone.yaml")
    mini.write("rubrics/tone.yaml", f"{rubric}calibration: {{labels: labels/tone.jsonl}}\n")
    mini.write("labels/tone.jsonl", LABELS)
    mini.edit("experiments/hello.yaml", "pointwise: [judge]", "pointwise: [kind]")

    def calibrated(version: str, *flags: str) -> dict[str, Any]:
        lay_out({"judges/kind": "Kind"}, GRADING + GOOD, version)
        done = edison(mini, "calibrate", "--json", *flags)
        assert done.code == 0, done.all
        (found,) = json.loads(done.out)["experiments"]
        return dict(found)

    lay_out({"judges/kind": "Kind"}, GRADING + GOOD)
    (ran,) = json.loads(edison(mini, "run", "--json").out)["runs"]
    assert ran["calls"]["made"] == 2, "answers only"
    found = calibrated("1.0")
    assert (found["judges"], found["reports"][0]["n"]) == (["kind"], 2)
    assert "broken 1.0" in mini.read("judge_approvals.yaml")
    assert "2 labels, 50 are needed" in calibrated("1.0", "--dry-run")["judge_approval"]["reason"]
    stale = calibrated("1.1", "--dry-run")["judge_approval"]["reason"]
    assert "the judge's model, parameters or package changed" in stale


def test_reasons_of_a_judge_of_a_package_are_redacted(
    edison: Edison, mini: Folder, lay_out: LayOut
) -> None:
    mini.write(
        "edison.yaml",
        "version: 1\nproject: mini\nsettings: {redact_pii_before_storage: true}\n",
    )
    mini.edit("experiments/hello.yaml", "pointwise: [judge]", "pointwise: [kind]")
    lay_out({"judges/kind": "Kind"}, GRADING + GOOD)
    assert edison(mini, "run").code == 0
    cells = cells_in(edison(mini, "report", "--format", "jsonl").out)
    reason = component(cells["small", "ada"], "Warmth")["reason"]
    assert reason == "Ada is at [E-MAIL]"


FORMATS = """
from edison_ci.report.reporters import Reporter

class NotOne:
    pass

class Number(Reporter):
    def render(self, report, sources):
        return 5

class Mistaken(Reporter):
    def render(self, report, sources):
        return 1 / 0

class Packed(Reporter):
    suffix = ".bin"

    def render(self, report, sources):
        return b"\\x00" + report.runs[0].run.experiment.encode()
"""


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ({"reporters/odd": "NotOne"}, "is not a subclass of edison_ci.report.reporters.Reporter"),
        ({"reporters/odd": "Number"}, "'odd' of broken 1.0 returned int, not text or bytes"),
        ({"reporters/odd": "Mistaken"}, "'odd' of broken 1.0 failed: ZeroDivisionError"),
        ({"reporters/odd": "Packed"}, "--format odd needs a file"),
        ({"reporters/odd": "Packed", "reporters/md": "Packed"}, "has the name 'md'"),
    ],
)
def test_a_broken_reporter_is_refused(
    edison: Edison, mini: Folder, lay_out: LayOut, points: dict[str, str], said: str
) -> None:
    lay_out(points, FORMATS)
    assert edison(mini, "run").code == 0
    done = edison(mini, "report", "--format", "odd")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_bytes_of_a_reporter_are_written_as_they_are(
    edison: Edison, mini: Folder, lay_out: LayOut
) -> None:
    lay_out({"reporters/odd": "Packed"}, FORMATS)
    assert edison(mini, "run").code == 0
    assert edison(mini, "report", "--out", "run.bin").code == 0
    assert (mini.path / "run.bin").read_bytes() == b"\x00hello"


def test_a_module_that_fails_is_named(edison: Edison, mini: Folder, lay_out: LayOut) -> None:
    mini.edit("models.yaml", "provider: sim, model: small", "provider: acme, model: m, price: free")
    lay_out({"providers/acme": "Good"}, "1 / 0\n")
    done = edison(mini, "validate")
    assert done.code == 2
    assert "broken:Good for 'acme' cannot be loaded: ZeroDivisionError" in done.all
    assert "Traceback" not in done.all
