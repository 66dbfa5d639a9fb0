"""Answers to questions on a terminal, which Ctrl-C can stop at any moment.

A signal that arrives just before `input` begins to wait is noticed only after the next key. So the
wait is for a line to be there, and in short pieces; then it is read.
"""

from __future__ import annotations

import select
import sys

from click import termui

_PIECE_S = 0.2


def _input(prompt: str) -> str:
    try:
        waits = [sys.stdin.fileno()] if sys.stdin.isatty() else []
    except (OSError, ValueError):  # closed, or no file
        waits = []
    if waits:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while not select.select(waits, [], [], _PIECE_S)[0]:
            pass
        prompt = ""
    return input(prompt)


def install() -> None:
    """Let all questions wait in this way."""
    termui.visible_prompt_func = _input
