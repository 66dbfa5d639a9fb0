"""What can be written for a task that nobody knows: a function that fits its examples."""

from __future__ import annotations

import ast
import re

_SIGNATURE = re.compile(r"def (\w+)\(([^\n]{0,300}?)\)(?:\s*->\s*([^\n:]{1,100}))?")
_EXAMPLE = re.compile(
    r"^[-* \t]*(\w+\(.{0,400}\)) (?:gives|returns|->|==|=>|is) (.{1,400})$", re.MULTILINE
)
_NAMED = re.compile(r"\bfor (?:the function )?`?([a-z_]\w*)`?\b")
_READ_CHARS = 20_000
_MAX_EXAMPLES = 8


def stub(said: str) -> str:
    """Return a function with the signature in a message and the results of its examples."""
    text = said[:_READ_CHARS]
    header = _header(text)
    name = header[4 : header.index("(")]
    arguments = [argument.arg for argument in ast.parse(f"{header}: ...").body[0].args.args]  # type: ignore[attr-defined]  # a def
    lines = [f"{header}:", f'    """{_summary(text, name)}"""']
    for call, result in _EXAMPLE.findall(text)[:_MAX_EXAMPLES]:
        values = _arguments(call, name, len(arguments))
        if values is not None and _is_expression(result):
            wanted = " and ".join(
                f"{argument} == {value}" for argument, value in zip(arguments, values, strict=True)
            )
            lines += [f"    if {wanted or 'True'}:", f"        return {result.strip()}"]
    lines.append('    raise ValueError("this input is not covered by the examples")')
    return "\n".join(lines) + "\n"


def _header(text: str) -> str:
    found = _SIGNATURE.search(text)
    if found:
        result = f" -> {found[3].strip()}" if found[3] else ""
        header = f"def {found[1]}({found[2]}){result}"
        if _parses(f"{header}: ..."):
            return header
    named = _NAMED.search(text)
    name = named[1] if named and _parses(f"def {named[1]}(): ...") else "solution"
    return f"def {name}(value)"


def _summary(text: str, name: str) -> str:
    found = re.search(rf"{re.escape(name)}\W{{1,3}}([A-Z][^.\n\"\\]{{8,90}})", text)
    return f"{found[1].strip()}." if found else f"Return the result of {name}."


def _arguments(call: str, name: str, count: int) -> list[str] | None:
    """Return the source of each argument of an example call, if it fits the signature."""
    if not _parses(call):
        return None
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    if node.func.id != name or node.keywords or len(node.args) != count:
        return None
    return [ast.unparse(argument) for argument in node.args]


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
