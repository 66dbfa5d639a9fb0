"""What each configuration is to become: files, and what is said of each key.

    promptfoo/NAME/promptfooconfig.yaml    a configuration and the files it names
    prompt_yml/NAME.prompt.yml             one of GitHub Models
    expected/NAME/                         the files that come of it
    expected/NAME.txt                      the counts, then a line for each key

After a change of what becomes of something, `python -m tests.features.importing.golden` writes the
expectations anew; read the difference.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.output import ImportPlan, find_target, import_name, plan_import
from edison_ci.features.importing.prompt_yml import import_prompt_yml, import_stem
from edison_ci.features.importing.promptfoo import import_promptfoo

if TYPE_CHECKING:
    from edison_ci.features.importing.output import ImportResult

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
PROMPTFOO = sorted((HERE / "promptfoo").glob("*/promptfooconfig.yaml"))
PROMPT_YML = sorted((HERE / "prompt_yml").glob("*.prompt.yml"))


@dataclass(frozen=True)
class Outcome:
    """What an import came to."""

    name: str
    imported: ImportResult
    plan: ImportPlan

    @property
    def files(self) -> dict[str, str]:
        """Its files but for the schemas, which are the same for all."""
        return {k: v for k, v in self.plan.files.items() if not k.startswith(".edison/schemas/")}

    @property
    def counts(self) -> dict[str, int]:
        return {status.value: self.imported.fidelity.count(status) for status in Status}

    @property
    def told(self) -> str:
        counts = " ".join(f"{status} {number}" for status, number in self.counts.items())
        lines = [
            f"{entry.status} {entry.where} {entry.key}"
            + (f" -> {entry.target}" if entry.target else "")
            + (f": {entry.note}" if entry.note else "")
            for entry in self.imported.fidelity.sorted_entries()
        ]
        return "\n".join([counts, *lines]) + "\n"


def come(path: Path, root: Path) -> Outcome:
    """Import a configuration into a folder, without writing it."""
    target = find_target(root)
    if path.name.endswith(".prompt.yml"):
        name = import_stem(path)
        imported = import_prompt_yml(path, display_folder="", name=name, setting=target.setting)
    else:
        name = import_name(path)
        imported = import_promptfoo(path, display_folder="", name=name, setting=target.setting)
    return Outcome(name, imported, plan_import(target, [imported]))


def expected_files(name: str) -> dict[str, str]:
    folder = EXPECTED / name
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main() -> None:
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for path in (*PROMPTFOO, *PROMPT_YML):
        with tempfile.TemporaryDirectory() as folder:
            came = come(path, Path(folder))
        for name, text in came.files.items():
            target = EXPECTED / came.name / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        (EXPECTED / f"{came.name}.txt").write_text(came.told, encoding="utf-8")


if __name__ == "__main__":
    main()
