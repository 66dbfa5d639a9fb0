"""Hours of scheduled runs in seconds, with a scheduler that is killed at random."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import ROOT
from tests.timing import PATIENCE_S


def test_every_hour_is_accounted_for_though_schedulers_are_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--hours", "8", "--seed", "4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["lost"], found["doubled"], found["incomplete"]) == (0, 0, 0), found
    assert found["kills"] > 0
    assert found["done"] + found["missed"] == 8
    assert found["runs"] == found["started"] >= found["done"] > 0
