"""A hostile configuration ends in files or in an error with a hint."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.documents.yaml_text import YamlLimits, read_yaml
from edison_ci.errors import EdisonError
from tests.features.importing.golden import PROMPT_YML, PROMPTFOO, come

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JUNK: list[Any] = [
    None, True, 0, -1, 1e9, "", "x", "{{", "{{ x", "{% if %}", "{{ a.b }}", "file://", "file://*.csv",
    [], [[]], {}, {"a": 1}, ["x", None], {"type": "contains"}, {"$ref": "#/x"}, {"$ref": "#"},
    "not-",    "\u202e\u00e9", "a" * 30_000, {"id": 5}, [{"role": "user"}], {"type": 5}, [3, "y"],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.nightly
@pytest.mark.parametrize(
    "path", [*PROMPTFOO, *PROMPT_YML], ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_a_damaged_configuration_is_no_bug(path: Path, tmp_path: Path) -> None:
    rng = random.Random(path.name + path.parent.name)
    whole = read_yaml(path.read_bytes(), path.name, limits=YamlLimits(merge=True)).value
    shutil.copytree(path.parent, tmp_path / "source")
    target = tmp_path / "source" / path.name
    for _ in range(12):
        value: Any = whole
        for _ in range(rng.choice([1, 1, 2])):
            value = changed(value, rng.choice([p for p in places(value) if p]), rng.choice(JUNK))
        target.write_text(json.dumps(value), encoding="utf-8")
        with suppress(EdisonError):
            come(target, tmp_path / "project")


def test_values_that_multiply_are_bounded(tmp_path: Path) -> None:
    many = {f"v{number}": list(range(10)) for number in range(9)}
    config = {
        "prompts": ["{{v1}}"],
        "providers": ["echo"],
        "tests": [{"vars": many}, {"vars": {"v1": "a"}}],
    }
    source = tmp_path / "promptfooconfig.yaml"
    source.write_text(json.dumps(config), encoding="utf-8")
    came = come(source, tmp_path / "project")
    assert "tests[0]: it would exceed the limit of" in came.told
    (rows,) = [text for name, text in came.files.items() if name.endswith(".jsonl")]
    assert len(rows.splitlines()) == 1


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    source = tmp_path / "promptfooconfig.yaml"
    source.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(EdisonError, match="aliases expand to more than"):
        come(source, tmp_path / "project")
