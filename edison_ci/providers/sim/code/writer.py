"""Which Python function does the simulator write?"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

from edison_ci.providers.sim.code.mutations import mutated
from edison_ci.providers.sim.code.stub import stub
from edison_ci.providers.sim.knowledge import texts

if TYPE_CHECKING:
    from edison_ci.providers.sim.assignment import Assignment
    from edison_ci.providers.sim.writing import Writing

_FAULTS = ("edge", "correct", "hints", "docstring", "quiet")
_RENAMES = ("{camel}", "{name}_impl", "solve", "my_{name}", "do_{name}", "{name}_function")
_LEAD = (
    "Here is the function:",
    "Sure! This should do what you describe:",
    "You can use the following code:",
    "One way to write it:",
)
_TRAIL = (
    "It goes through the input once and returns the result.",
    "Let me know if you would like tests for it.",
    "You can call it as shown in the examples.",
    "I kept it simple so that it is easy to change.",
)


def write(writing: Writing) -> str:
    """Return the answer, with the qualities it is to have."""
    assignment = writing.assignment
    trap = _trap(assignment)
    if trap and not writing.has["guard"]:
        return trap if not trap.startswith("def ") else _laid_out(writing, trap)
    source = _source(assignment)
    faults = frozenset(name for name in _FAULTS if not writing.has[name])
    if assignment.case is None:
        faults -= {"edge", "correct"}  # a table of examples has neither
    code = mutated(source, faults, writing.rng.randrange(12))
    if not writing.has["name"]:
        code = _renamed(writing, code)
    return _laid_out(writing, code)


def _source(assignment: Assignment) -> str:
    case = assignment.case
    if case is not None and isinstance(case.expected, str) and "task" in assignment.inputs:
        return case.expected
    return stub(assignment.said)


def _trap(assignment: Assignment) -> str:
    """Return what a model writes that falls for the case."""
    if assignment.case is not None:
        return str(texts("code_traps").get(assignment.case.id, ""))
    return "Done." if assignment.gives_orders else ""


def _renamed(writing: Writing, code: str) -> str:
    found = re.search(r"^def (\w+)\(", code, re.MULTILINE)
    if found is None:
        return code
    name = found[1]
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    new = writing.pick(_RENAMES).format(camel=camel, name=name)
    if new == name or keyword.iskeyword(new):
        new = f"get_{name}"
    return re.sub(rf"\b{re.escape(name)}\b(?=\()", new, code)


def _laid_out(writing: Writing, code: str) -> str:
    """Return the code in one block, or in one of the ways that cannot be pasted."""
    code = code.strip("\n")
    if writing.has["block"]:
        return f"```python\n{code}\n```"
    form = writing.rng.randrange(5)
    if form == 0:
        return code
    if form == 1:
        return f"```\n{code}\n```"
    if form == 2:
        return f"{writing.pick(_LEAD)}\n\n{code}\n\n{writing.pick(_TRAIL)}"
    if form == 3:
        return f"{writing.pick(_LEAD)}\n\n```py\n{code}\n```\n\n{writing.pick(_TRAIL)}"
    return f"{writing.pick(_LEAD)}\n\n```python\n{code}\n```\n\n{writing.pick(_TRAIL)}"
