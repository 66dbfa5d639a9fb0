"""The action, run by `act`: one step in a workflow, one comment, one verdict, and no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.forge.sticky import State, stamp_of
from tests.conftest import Folder
from tests.e2e.acting import BAD, CASES, GOOD, KEY, Bench, lay_out_action, needs_environment
from tests.forge.conftest import open_pull
from tests.forge.fake_github import FakeGitHub
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKFLOW = """\
name: edison
on: [pull_request, push, schedule, merge_group]
jobs:
  evaluate:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1
      - id: edison
        uses: edison-ci/edison-ci@1111111111111111111111111111111111111111
        env:
          VENDOR_KEY: ${{ secrets.VENDOR_KEY }}
      - if: always()
        env:
          OUTPUTS: ${{ toJSON(steps.edison.outputs) }}
          REPORT: ${{ steps.edison.outputs.report }}
          DB: ${{ steps.edison.outputs.db }}
        run: |
          printf '%s' "$OUTPUTS" >"$KEPT/outputs.json"
          cp -r "$REPORT" "$KEPT/report"
          if [ -n "$DB" ]; then cp "$DB" "$KEPT/results.db"; fi
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    needs_environment()
    lay_out_action(tmp_path / "action")
    (tmp_path / "repository").mkdir()
    with FakeGitHub() as github, LoopbackServer() as model:
        open_pull(github)
        made = Bench(Folder(tmp_path / "repository"), tmp_path, github, model)
        made.repository.write(".github/workflows/edison.yml", WORKFLOW)
        made.lay_out()
        yield made


def test_a_pull_request_is_measured_against_its_base(bench: Bench) -> None:
    bench.propose_prompt(BAD)
    done = bench.act("pull_request", bench.pull_request())
    assert done.code == 1, done.log
    assert done.outputs["verdict"] == "fail"
    assert float(done.outputs["delta"]) == -1
    assert (done.outputs["cells"], done.outputs["regressions"]) == (f"{2 * CASES}", f"{CASES}")
    assert round(float(done.outputs["cost-usd"]) * 1e6) == bench.model.ledger_total()
    assert "❌ edison: fail" in done.log, "the job summary"
    assert "❗  ::error file=prompts/hello.md,line=5" in done.log
    assert sorted(path.name for path in (done.kept / "report").iterdir()) == [
        "edison.sarif",
        "junit.xml",
        "report.json",
        "report.md",
    ]
    assert (done.kept / "results.db").exists()
    (comment,) = bench.comments
    stamp = stamp_of(comment)
    assert stamp is not None
    assert (stamp.head_sha, stamp.state, stamp.verdict) == (bench.head, State.FINAL, "fail")
    assert done.outputs["comment-url"].endswith(f"#issuecomment-{min(bench.github.state.comments)}")
    assert all(
        request.headers["authorization"] == f"Bearer {KEY}" for request in bench.model.requests
    )
    bench.assert_no_secret(done)

    bench.propose_prompt(f"{GOOD} Be brief.")
    done = bench.act("pull_request", bench.pull_request())
    assert (done.code, done.outputs["verdict"]) == (0, "pass"), done.log
    (comment,) = bench.comments
    assert "✅ edison: pass" in comment
