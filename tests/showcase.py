"""Makes a project whose results have something of everything, by real runs of the simulator.

    python -m tests.showcase FOLDER

The tests of pages read them, and so does whoever wants to look at every page that is not empty.
Some cases are hostile: their names, tags and texts try to become markup, script or addresses, and
the simulator repeats them in its answers.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edison_ci.features.refine.loop_rows import (
    Iteration,
    Loop,
    LoopState,
    write_iteration,
    write_loop,
)
from edison_ci.records import SuggestionStatus
from edison_ci.store.database import open_for_change
from edison_ci.store.suggestions import (
    Guardrail,
    MadeBy,
    Suggestion,
    SuggestionComment,
    add_comment,
    add_suggestion,
)
from tests import forked
from tests.timing import PATIENCE_S

ROOT = Path(__file__).parent.parent
EXPERIMENT = "support-reply"
PROBE = "<img src=x onerror=\"document.title='PWNED'\"><script>document.title='PWNED'</script>"
"""What would change the title of a page that takes it for markup."""
HOSTILE: tuple[dict[str, Any], ...] = (
    {
        "id": "<script>alert(1)</script>",
        "input": {"customer_name": PROBE, "message": f"{PROBE} {{{{7*7}}}} ${{7*7}} <%= 7*7 %>"},
        "expected": "30 days",
        "tags": ['"><svg onload=alert(1)>', "hostile"],
    },
    {
        "id": "javascript:alert(1)//?a=1&b=2#c%3Cscript",
        "input": {"customer_name": "Ada", "message": "[click](javascript:alert(1)) \u202egnp.exe"},
        "expected": "</pre></td></table><h1>out</h1>",
        "tags": ["hostile"],
    },
    {
        "id": "مرحبا بالعالم",
        "input": {"customer_name": "ليلى", "message": "أين طلبي رقم 12؟ وصلني إشعار قبل أسبوع."},
        "expected": "30",
        "tags": ["multilingual"],
    },
    {
        "id": "huge-message",
        "input": {"customer_name": "Bo", "message": "Where is my parcel? " * 400},
        "expected": "parcel",
        "tags": ["long"],
    },
)
_POLICY = "Unused items can be returned within 30 days of delivery. The customer needs no reason."
_MODELS = """\
version: 1
small: {provider: sim, model: small, price: {in: 0.4, out: 1.6}}
large: {provider: sim, model: large, price: {in: 2.5, out: 10}}
faulty: {provider: sim, model: small, options: {error_rate: 0.3, seed: 4}, price: {in: 1, out: 4},
  params: {temperature: 0.5}, limits: {attempts: 1}}
judge: {provider: sim, model: judge, price: {in: 0.1, out: 0.4}}
strict: {provider: sim, model: judge, options: {noise: 0.3, seed: 7}, params: {temperature: 0.7},
  price: {in: 0.1, out: 0.4}}
refiner: {provider: sim, model: refiner}
"""


@dataclass(frozen=True)
class Showcase:
    """The project that is being made."""

    path: Path

    def edison(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command; another end than expected is an error with all that was said."""
        done = forked.run(
            [sys.executable, "-P", "-m", "edison_ci", *words],
            cwd=self.path,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode not in codes:
            raise RuntimeError(f"edison {' '.join(words)}: {done.returncode}\n{done.stderr}")
        return str(done.stdout)

    def git(self, *words: str) -> None:
        subprocess.run(
            ["git", *words], cwd=self.path, env=_environment(), check=True, capture_output=True
        )

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """Replace texts in a file; each must be there."""
        target = self.path / name
        text = target.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text, f"{old!r} is not in {name}"
            text = text.replace(old, new, 1)
        target.write_text(text, encoding="utf-8")


def _environment() -> dict[str, str]:
    """Return the environment without what says that we are in a job, or somebody else."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("EDISON_", "GITHUB_", "GIT_"))}


def build(path: Path) -> None:
    """Make the project in a folder that is not there yet."""
    shutil.copytree(ROOT / "examples" / "customer-support", path)
    made = Showcase(path)
    _write(made)
    made.git("init", "-q", "-b", "main")
    made.git("config", "user.email", "ada@example.com")
    made.git("config", "user.name", "Ada Example")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "Start")
    made.edison("run", EXPERIMENT, "--yes", codes=(0, 1))
    made.edit("prompts/support-reply.md", ("# user", _MORE + "\n# user"))
    made.git("checkout", "-q", "-b", "better")
    made.git("commit", "-qam", "Ask for warmth and a next step")
    made.edison("run", EXPERIMENT, "--against", "main", "--yes", codes=(0, 1))
    _people(made)
    _suggestions(made)
    _loops(made)
    _failing(made)


_MORE = (
    "Name the customer's problem in your first sentence, in your own words. State the one fact of "
    "the policy that settles it, and the next step. Promise nothing else.\n"
)


def _write(made: Showcase) -> None:
    golden = made.path / "datasets" / "golden.jsonl"
    rows = golden.read_text(encoding="utf-8").splitlines()[:16]
    hostile = [
        json.dumps({**case, "input": {**case["input"], "policy": _POLICY}}, ensure_ascii=False)
        for case in HOSTILE
    ]
    golden.write_text("\n".join([*rows, *hostile]) + "\n", encoding="utf-8")
    adversarial = made.path / "datasets" / "adversarial.jsonl"
    few = adversarial.read_text(encoding="utf-8").splitlines()[:4]
    adversarial.write_text("\n".join(few) + "\n", encoding="utf-8")
    (made.path / "models.yaml").write_text(_MODELS, encoding="utf-8")
    made.edit(
        f"experiments/{EXPERIMENT}.yaml",
        ("models: [small] ", "models: [small, large] "),
        ("repeats: 1 ", "repeats: 2 "),
        ("pointwise: [judge]", "pointwise: [judge, strict]\n  pairwise: {by: judge}"),
        ("at_least: 25%", "at_least: 90%"),
    )
    flaky = (made.path / f"experiments/{EXPERIMENT}.yaml").read_text(encoding="utf-8")
    flaky = flaky.replace(f"experiment: {EXPERIMENT}", "experiment: unreliable")
    flaky = flaky.replace("models: [small, large]", "models: [faulty]")
    flaky = flaky.replace("repeats: 2", "repeats: 1")
    (made.path / "experiments/unreliable.yaml").write_text(flaky, encoding="utf-8")


def _people(made: Showcase) -> None:
    """Let people grade, flag and set aside; let judges say what they think of the questions."""
    for grade, note in (("up", "kind and right"), ("down", PROBE), ("down", "promises too much")):
        made.edison("grade", EXPERIMENT, "--next", "--grade", grade, "--note", note)
    made.edison("grade", EXPERIMENT, "--next", "--grade", "up", "--flag", "--note", "look again")
    made.edison("dataset", "judge", EXPERIMENT, "--by", "judge", "--by", "strict", "--yes")
    made.edison("quarantine", "add", EXPERIMENT, "return-how", "--reason", "judges disagree")
    made.edison("admin", "cache", "clear", "--older-than", "3650d", "--yes", codes=(0, 2))


def _suggestions(made: Showcase) -> None:
    """Refine, so that a suggestion waits for a decision, and keep a hostile one beside it."""
    made.edison("refine", EXPERIMENT, "--force", "--yes")
    text = (made.path / "prompts/support-reply.md").read_text(encoding="utf-8")
    with open_for_change(made.path / ".edison" / "results.db") as connection:
        (base,) = connection.execute(
            "select version from cell where side = 'head' order by rowid desc limit 1"
        ).fetchone()
        rows = connection.execute(
            "select id from cell where passed = 0 and side = 'head' order by case_id, id limit 3"
        )
        examples = [cell[:12] for (cell,) in rows]
        diff = "".join(
            difflib.unified_diff(
                text.splitlines(keepends=True),
                [*text.splitlines(keepends=True), f"Mention {PROBE}\n"],
                "a/prompts/support-reply.md",
                "b/prompts/support-reply.md",
            )
        )
        kept = Suggestion(
            experiment=EXPERIMENT,
            prompt="support-reply",
            path="prompts/support-reply.md",
            base_hash=base,
            diff=diff,
            note=PROBE,
            status=SuggestionStatus.REJECTED,
            created_at="2026-11-15T09:00:00.000Z",
            targets=("Empathy", "check icontains expected"),
            guardrails=(Guardrail("one_file", True, "changes one file"),),
            evidence={**_EVIDENCE, "examples": examples},
            reason=PROBE,
            simulated=True,
            cost_microusd=12_345,
            made_by=MadeBy.OPTIMIZE,
        )
        comment = SuggestionComment("ada@example.com", PROBE, "2026-11-15T09:05:00.000Z")
        add_comment(connection, add_suggestion(connection, kept), comment)


_SEARCH = {
    "generations": 3,
    "tried": 24,
    "measured": 11,
    "refused": 1,
    "wider": 4,
    "earlier_comparisons": 0,
    "stopped_by": PROBE,
}
_EVIDENCE = {
    "search": _SEARCH,
    "train": {
        "n": 14,
        "before": {"estimate": 0.61, "low": 0.55, "high": 0.67, "n": 14, "method": "t"},
        "after": {"estimate": 0.69, "low": 0.63, "high": 0.75, "n": 14, "method": "t"},
        "difference": {"estimate": 0.08, "low": 0.02, "high": 0.14, "n": 14, "p": 0.03},
        "decision": "better",
        "sentence": "8.0 points better on the training cases.",
        "fixed": ["return-how"],
        "newly_failing": [],
    },
    "holdout": None,
    "sentence": "Better on the cases that it was made from; the holdout is too small to say.",
}


def _loops(made: Showcase) -> None:
    """Keep a loop that is done, and one that waits for a decision, over runs that are there."""
    with open_for_change(made.path / ".edison" / "results.db") as connection:
        runs = connection.execute(
            "select r.id, c.version from run r join cell c on c.run_id = r.id and c.side = 'head' "
            "where r.experiment = ? and r.trigger <> 'refine' group by 1 order by r.created_at",
            (EXPERIMENT,),
        ).fetchall()
        (proposed,) = connection.execute(
            "select id from suggestion where status = 'proposed'"
        ).fetchone()
        about = (EXPERIMENT, "support-reply")
        ends = {"stopped_by": "no_refinement", "finished_at": "2026-11-15T09:30:00.000Z"}
        done = Loop("20261115T090000-loop01", *about, "auto", LoopState.DONE, 5, 2_000_000,
                    "2026-11-15T09:00:00.000Z", branch=f"edison/loop/{EXPERIMENT}",
                    base_commit="0" * 40, evidence={**_EVIDENCE, "holdout": _EVIDENCE["train"]},
                    simulated=True, **ends)  # fmt: skip
        waits = Loop("20261115T100000-loop02", *about, "review", LoopState.REVIEWING, 10,
                     100_000_000, "2026-11-15T10:00:00.000Z", simulated=True)  # fmt: skip
        for loop in (done, waits):
            write_loop(connection, loop)
            for number, (run_id, version) in enumerate(runs[: 1 if loop is waits else None], 1):
                score, made_by = 0.6 + 0.05 * number, proposed if number > 1 else None
                of = (number, "support-reply", "prompts/support-reply.md", version, PROBE, run_id)
                found = Iteration(*of, score, 15, made_by)
                if loop is waits:
                    found = found._replace(outcome="suggested", pending=proposed)
                write_iteration(connection, loop, found)


def _failing(made: Showcase) -> None:
    """Run what fails in part, and what stops half-way."""
    made.edison("run", "unreliable", "--yes", codes=(0, 1, 3))
    made.edison("run", EXPERIMENT, "--no-cache", "--budget", "0.001", "--yes", codes=(4,))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
