"""Regular expressions of JavaScript, written so that Python finds the same."""

from __future__ import annotations

import re

from edison_ci.checks.patterns import analyse_pattern
from edison_ci.features.importing.prompts import ConversionError

_SPACES = r"\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = r"\n\r\u2028\u2029"
_QUANTIFIER = re.compile(r"\{\d+(?:,\d*)?\}")
_GROUP = re.compile(r"\(\?(?:[:=!]|<[=!])")
_NAMED = re.compile(r"\(\?<([A-Za-z_]\w*)>")
_KNOWN_ESCAPES = "dDwWsSbBtnrvfxu123456789"
_MAY_DIFFER = "the pattern may mean something else here: an emoji is two characters in JavaScript"


def javascript_pattern(source: str, flags: str = "") -> tuple[str, str]:
    """Return a pattern of JavaScript as Python's, and a note if its meaning may differ.

    Raises ConversionError if one of the two languages does not take it.
    """
    reader = _Pattern(source, flags)
    converted = reader.read()
    try:
        analyse_pattern(converted)
    except Exception as error:
        raise ConversionError(f"the pattern is not valid in Python: {error}") from None
    return converted, _MAY_DIFFER if reader.may_differ else ""


class _Pattern:
    def __init__(self, source: str, flags: str) -> None:
        self._source, self._flags, self._at = source, flags, 0
        self._ascii = False
        self.may_differ = bool(set(flags) - set("gimsy")) or ("i" in flags and not source.isascii())

    def read(self) -> str:
        parts = []
        while self._at < len(self._source):
            parts.append(self._next())
        start = ("a" if self._ascii else "") + ("i" if "i" in self._flags else "")
        return (f"(?{start})" if start else "") + "".join(parts)

    def _next(self) -> str:
        sign = self._source[self._at]
        if sign == "\\":
            return self._escape(inside=False)
        if sign == "[":
            return self._class()
        if sign == "(":
            return self._group()
        if sign == "{":
            found = _QUANTIFIER.match(self._source, self._at)
            if found is None:
                self._at += 1
                return r"\{"
            return self._quantifier(found[0])
        if sign in "*+?":
            return self._quantifier(sign)
        self._at += 1
        return self._plain(sign)

    def _counts_one(self) -> None:
        """Note that one character is counted: an emoji is two in JavaScript."""
        if self._source[self._at : self._at + 1] not in ("*", "+"):
            self.may_differ = True

    def _plain(self, sign: str) -> str:
        lines = "m" in self._flags
        if sign == ".":
            self._counts_one()
            return r"[\s\S]" if "s" in self._flags else f"[^{_LINE_ENDS}]"
        if sign == "$":
            return f"(?=[{_LINE_ENDS}]|\\Z)" if lines else r"\Z"
        if sign == "^" and lines:
            return f"(?<![^{_LINE_ENDS}])"
        return sign

    def _quantifier(self, text: str) -> str:
        self._at += len(text)
        if self._source[self._at : self._at + 1] == "?":
            self._at += 1
            text += "?"
        if self._source[self._at : self._at + 1] in ("*", "+", "?"):
            raise ConversionError("the pattern is not valid in JavaScript")
        return text

    def _group(self) -> str:
        named = _NAMED.match(self._source, self._at)
        found = _GROUP.match(self._source, self._at)
        if named is not None:
            self._at = named.end()
            return f"(?P<{named[1]}>"
        if found is not None:
            self._at = found.end()
            return found[0]
        if self._source.startswith("(?", self._at):
            raise ConversionError(
                "the pattern is not valid in JavaScript, so every answer fails there"
            )
        self._at += 1
        return "("

    def _escape(self, *, inside: bool) -> str:
        letter = self._source[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in ("S", "W", "D") and not inside:
            self._counts_one()
        if letter in ("s", "S"):
            self._ascii = True
            if inside:
                self.may_differ = self.may_differ or letter == "S"
                return _SPACES if letter == "s" else r"\S"
            return f"[{'^' if letter == 'S' else ''}{_SPACES}]"
        if letter == "k" and (named := re.match(r"<(\w+)>", self._source[self._at :])):
            self._at += named.end()
            return f"(?P={named[1]})"
        if letter == "0":
            return r"\x00"
        if letter and letter in _KNOWN_ESCAPES:
            self._ascii = self._ascii or letter in "dDwWbB"
            if letter == "u" and self._source[self._at : self._at + 1] == "{":
                self.may_differ = True
                return "u"
            return f"\\{letter}"
        if letter.isascii() and letter.isalpha():
            self.may_differ = self.may_differ or letter == "c"
            return letter
        return re.escape(letter)

    def _class(self) -> str:
        everything = r"[\s\S]"
        for whole, meaning in (("[^]", everything), ("[]", "(?!)"), (everything, everything)):
            if self._source.startswith(whole, self._at):
                self._at += len(whole)
                if meaning == everything:
                    self._counts_one()
                return meaning
        start = "[^" if self._source.startswith("[^", self._at) else "["
        self._at += len(start)
        parts = [start]
        while self._at < len(self._source) and self._source[self._at] != "]":
            sign = self._source[self._at]
            if sign == "\\":
                parts.append(self._escape(inside=True))
                continue
            parts.append(f"\\{sign}" if sign in "[&|~" else sign)
            self._at += 1
        self._at += 1
        if start == "[^":
            self._counts_one()
        return f"{''.join(parts)}]"
