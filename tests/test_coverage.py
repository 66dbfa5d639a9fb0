"""The table of `make coverage`."""

from __future__ import annotations

from benchmarks.coverage import report


def counted(share: int) -> dict[str, int]:
    return {"num_statements": 100, "covered_lines": share}


def test_the_engine_has_a_higher_target_than_the_rest() -> None:
    names = ("edison_ci/cli/a.py", "edison_ci/cli/b/c.py", "edison_ci/spelling.py")
    files = {name: counted(85) for name in names} | {"edison_ci/store/a.py": counted(90)}
    text, reached = report(files)
    assert reached
    assert "| cli | 200 | 85.0% | 85% |\n| edison_ci | 100 | 85.0% | 85% |" in text
    assert text.endswith("| store | 100 | 90.0% | 90% |\n| all | 400 | 86.2% | 85% |")
    for name in files:
        text, reached = report({**files, name: counted(84)})
        assert not reached
        assert "(too low)" in text
