"""Makes edison_ci/known_bad.json anew from the public database of advisories (OSV).

    python requirements/known_bad.py [--database URL]

It is asked about every package that a lock names. Advisories that nobody published there, such as
those on stolen releases that are gone from the index, stay as they are. Nothing of it is trusted
beyond its form: the file is committed, and read by people in a pull request.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from edison_ci.extras import known_bad, normal  # noqa: E402  # found by the line above

LIST = ROOT / "edison_ci" / "known_bad.json"
DATABASE = "https://api.osv.dev"
_PUBLISHED = re.compile(r"(?:CVE|GHSA|PYSEC|MAL|OSV)-")
_MOST = 150


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default=DATABASE)
    parser.add_argument("--output", type=Path, default=LIST)
    options = parser.parse_args()
    rows = [_row(advisory) for advisory in known_bad().advisories]
    kept = [row for row in rows if not _PUBLISHED.match(row["id"])]
    found = [row for name in locked() for row in asked(options.database, name)]
    listed = sorted([*kept, *found], key=lambda row: (row["package"], row["id"]))
    today = dt.datetime.now(dt.UTC).date().isoformat()
    text = json.dumps({"date": today, "advisories": listed}, indent=2, ensure_ascii=True)
    options.output.write_text(f"{text}\n", encoding="utf-8")
    packages = {row["package"] for row in listed}
    sys.stdout.write(f"{len(listed)} advisories on {len(packages)} packages\n")


def locked() -> list[str]:
    """Return the names of all packages that a lock pins."""
    texts = [
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "requirements").glob("*.txt"))
    ]
    return sorted(
        {normal(name) for text in texts for name in re.findall(r"(?m)^([\w.-]+)==", text)}
    )


def asked(database: str, package: str) -> list[dict[str, Any]]:
    """Return what the database knows of a package."""
    body = json.dumps({"package": {"name": package, "ecosystem": "PyPI"}}).encode()
    request = urllib.request.Request(
        f"{database}/v1/query", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = json.loads(reply.read(50_000_000))
    rows = [translated(package, vulnerability) for vulnerability in answer.get("vulns", ())]
    return [row for row in rows if row is not None]


def translated(package: str, vulnerability: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row of the list for an advisory; None if it was withdrawn or names no release."""
    if vulnerability.get("withdrawn"):
        return None
    ranges: set[tuple[str, str | None]] = set()
    versions: set[str] = set()
    for affected in vulnerability.get("affected", ()):
        if normal(affected.get("package", {}).get("name", "")) != package:
            continue
        told = [each for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM"]
        for each in told:
            ranges |= _spans(each.get("events", ()))
        if not told:
            versions |= {str(version) for version in affected.get("versions", ())}
    if not ranges and not versions:
        return None
    names = [vulnerability["id"], *vulnerability.get("aliases", ())]
    name = next((each for each in names if each.startswith("CVE-")), names[0])
    why = " ".join((vulnerability.get("summary") or vulnerability.get("details") or "").split())
    row: dict[str, Any] = {"package": package, "id": name, "why": why[:_MOST]}
    if ranges:
        row["ranges"] = sorted(ranges, key=lambda span: (span[0], span[1] or ""))
    if versions:
        row["versions"] = sorted(versions)
    return row


def _spans(events: list[dict[str, str]]) -> set[tuple[str, str | None]]:
    spans: set[tuple[str, str | None]] = set()
    first: str | None = None
    for event in events:
        if "introduced" in event:
            first = event["introduced"]
        elif "fixed" in event and first is not None:
            spans.add((first, event["fixed"]))
            first = None
    return spans | ({(first, None)} if first is not None else set())


def _row(advisory: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"package": advisory.package, "id": advisory.id, "why": advisory.why}
    if advisory.ranges:
        row["ranges"] = [list(span) for span in advisory.ranges]
    if advisory.versions:
        row["versions"] = list(advisory.versions)
    return row


if __name__ == "__main__":
    main()
