"""Try every attack against an installed edison, and tell which promises held.

    python -m tests.redteam --edison .tools/smoke/bin/edison [--seed N] [--count N] [--only NAME]
                            [--jobs N] [--log FILE] [--write FILE] [--extras .venv/bin/edison]
                            [--bare]

The exit code is 1 if anything got through. `--count` is how many variants are generated for each
attack, beyond those that are always tried; the same seed makes the same ones. `--log` has a line of
JSON for each variant. `--only` takes the beginning of an attack's name, and may be repeated.
`--extras` is an edison that has litellm, for jobs with models that it calls. `--bare` switches off
every feature but the one whose command is attacked: nothing that protects may be in a feature.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.redteam.campaign import Outcome, campaign, page
from tests.redteam.classes import ATTACKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.redteam")
    parser.add_argument("--edison", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--extras", default="")
    parser.add_argument("--bare", action="store_true")
    given = parser.parse_args()
    given.extras = given.extras and str(Path(given.extras).absolute())
    wanted = tuple(given.only)
    chosen = [attack for attack in ATTACKS if not wanted or attack.name.startswith(wanted)]
    if not chosen:
        parser.error(f"--only: the attacks are {', '.join(attack.name for attack in ATTACKS)}")

    def tell(outcome: Outcome) -> None:
        for finding in outcome.findings:
            sys.stderr.write(f"{outcome.attack}: {outcome.variant}: {finding}\n")
        if given.log:
            with given.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(vars(outcome)) + "\n")

    found = campaign(chosen, given.edison.absolute(), given, tell)
    text = page(chosen, found, given)
    sys.stdout.write(text)
    if given.write:
        given.write.parent.mkdir(parents=True, exist_ok=True)
        given.write.write_text(text, encoding="utf-8")
    return 1 if any(outcome.findings for outcome in found) else 0


if __name__ == "__main__":
    sys.exit(main())
