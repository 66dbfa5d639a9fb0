"""The libraries of statistics are loaded late, and without what nothing uses."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.timing import PATIENCE_S

SCRIPT = """
import json, sys
from edison_ci.stats.arrays import np, special
before = "numpy" in sys.modules
value = float(special.betaincinv(2, 3, 0.5))
numpy = sys.modules["numpy"]
loaded = [name for name in ("f2py", "testing", "ma") if f"numpy.{name}" in sys.modules]
print(json.dumps([before, value, loaded, "f2py" in dir(numpy), float(np.ma.mean([1.0, 3.0]))]))
"""


def test_special_functions_do_not_load_all_of_numpy() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout
    before, value, loaded, listed, mean = json.loads(told)
    assert (before, loaded) == (False, [])
    assert abs(value - 0.38572756813239) < 1e-12
    assert (listed, mean) == (True, 2.0), "the rest of numpy is there for who asks for it"
