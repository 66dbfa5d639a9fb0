"""Does the generated function give the stated result for every example of its case?"""

import contextlib
import io
import re
from typing import Any

FENCE = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def check(output: str, expected: str, case: dict[str, Any]) -> dict[str, Any]:
    """Run the code block of an answer on the case's examples.

    The product calls this in a child process without keys and with limits on time and memory, so
    an endless loop in the code ends there and not here. The reference in `expected` is not needed.
    """
    blocks = FENCE.findall(output)
    if len(blocks) != 1:
        return _verdict(0.0, f"expected one closed code block, found {len(blocks)}")
    examples = case.get("input", case)["examples"]
    # What the code prints must not mix with what this process reports on its standard output.
    with contextlib.redirect_stdout(io.StringIO()):
        namespace: dict[str, Any] = {"__name__": "generated"}
        problem = _execute(blocks[0], namespace)
        if problem:
            return _verdict(0.0, f"the code does not load: {problem}")
        failures = [text for example in examples if (text := _failure(example, namespace))]
    if failures:
        return _verdict(1 - len(failures) / len(examples), failures[0])
    return _verdict(1.0, f"all {len(examples)} examples give the stated result")


def _execute(code: str, namespace: dict[str, Any]) -> str:
    """Run module-level code and return what went wrong, or an empty string."""
    try:
        exec(compile(code, "generated.py", "exec"), namespace)
    except (Exception, SystemExit) as error:
        return _describe(error)
    return ""


def _failure(example: dict[str, str], namespace: dict[str, Any]) -> str:
    """Return why an example fails, or an empty string if it holds."""
    call, wanted = example["call"], example["result"]
    try:
        actual = repr(eval(call, namespace))
    except (Exception, SystemExit) as error:
        actual = _describe(error)
    return "" if actual == wanted else f"{call} should give {wanted}, not {actual:.200}"


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _verdict(score: float, reason: str) -> dict[str, Any]:
    return {"score": score, "pass": score == 1.0, "reason": reason}
