"""Which tests of the suite `promptfoo/red_green` promptfoo passes and fails, by the answer.

After a change of the suite they are recorded again, where promptfoo is installed:

    promptfoo eval -c red_green/promptfooconfig.yaml -o results.json
    python -m tests.features.importing.red_green results.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

SUITE = Path(__file__).parent / "promptfoo/red_green/promptfooconfig.yaml"
STORED = Path(__file__).with_name("red_green.json")


def recorded() -> dict[str, list[int]]:
    """Return the verdicts by answer; an answer of two tests has two."""
    stored: dict[str, Any] = json.loads(STORED.read_text("utf-8"))
    return dict(stored["passed"])


def record(results: Path) -> None:
    """Store what a file of results says."""
    told = json.loads(results.read_text("utf-8"))
    found = defaultdict(list)
    for each in told["results"]["results"]:
        found[each["response"]["output"]].append(int(each["success"]))
    lines = ",\n".join(
        f"    {json.dumps(text)}: {sorted(passed)}" for text, passed in sorted(found.items())
    )
    version = json.dumps(told["metadata"]["promptfooVersion"])
    STORED.write_text(
        f'{{\n  "promptfoo": {version},\n  "passed": {{\n{lines}\n  }}\n}}\n', "utf-8"
    )


if __name__ == "__main__":
    record(Path(sys.argv[1]))
