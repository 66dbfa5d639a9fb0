"""Nonsense scores low in every template, and the answers of its models do not."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from edison_ci.cli.init import TEMPLATES
from tests.conftest import edison

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

__all__ = ["edison"]

NONSENSE = ("Purple bananas sing quietly.", "I cannot help with that.", "lorem ipsum " * 30, "{}")


def score(edison: Edison, folder: Folder) -> float:
    done = edison(folder, "run", "--limit", "30", "--json")
    (run,) = json.loads(done.out)["runs"]
    return 100 * float(run["composite"]["estimate"])


@pytest.mark.nightly
@pytest.mark.parametrize("template", TEMPLATES)
def test_nonsense_scores_low_and_answers_do_not(
    edison: Edison, folder: Folder, template: str
) -> None:
    assert edison(folder, "init", "--template", template).code == 0
    (path,) = folder.path.glob("experiments/*.yaml")
    answered = score(edison, folder)
    assert answered > 50
    text = re.sub(r"(?m)^models: \[.*?\]", "models: [fool]", path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    folder.write(
        "models.yaml",
        folder.read("models.yaml")
        + "\nfool: {provider: sim, model: script, options: {file: nonsense.jsonl}}\n",
    )
    for nonsense in NONSENSE:
        folder.write("nonsense.jsonl", json.dumps({"text": nonsense}) + "\n")
        for left in folder.path.glob(".edison/results.db*"):
            left.unlink()
        assert score(edison, folder) < 20, nonsense
