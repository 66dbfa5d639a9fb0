"""Checks that a tag may become a release, and prints what the release says of itself.

    python requirements/release.py check v1.2.3     refuse a tag that does not fit the repository
    python requirements/release.py notes v1.2.3     print the section of CHANGELOG.md

The version stands in edison_ci/__init__.py and nowhere else. Needs only Python 3.11.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Check a tag or print its notes; return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("check", "notes"):
        sys.stderr.write("usage: release.py check TAG | release.py notes TAG\n")
        return 2
    command, tag = arguments
    if problems := wrong_with(tag, root):
        sys.stderr.write("".join(f"error: {problem}\n" for problem in problems))
        return 1
    said = f"{tag} may be released" if command == "check" else notes(tag, root)
    sys.stdout.write(f"{said}\n")
    return 0


def wrong_with(tag: str, root: Path = ROOT) -> list[str]:
    """Return why a tag may not be released."""
    found = _TAG.fullmatch(tag)
    if found is None:
        return [f"{tag!r} is not the tag of a release: write v1.2.3, or v1.2.3rc1 before it"]
    problems = []
    if (known := version(root)) != found[1]:
        where = "edison_ci/__init__.py"
        problems.append(f"the tag says {found[1]}, but {where} says {known}: change one of them")
    if not re.search(r"(?m)^- ", notes(tag, root)):
        heading = f"## [{found[1].partition('rc')[0]}]"
        problems.append(f"CHANGELOG.md has nothing below {heading}: say what the release changes")
    return problems


def version(root: Path = ROOT) -> str:
    """Return the version of the package, from its one place."""
    text = (root / "edison_ci" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'(?m)^__version__ = "(.+)"$', text)
    return found[1] if found else ""


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section of the changelog about a tag, empty if there is none."""
    name = re.escape(re.split(r"(?:a|b|rc)\d+$", tag.removeprefix("v"))[0])
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^## \[{name}\][^\n]*\n(.*?)(?=^## |\Z)", text)
    return found[1].strip() if found else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
