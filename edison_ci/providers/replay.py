"""Answers replayed from a recording.

A replay answers from a recording and from nothing else, so it needs neither key nor network. A call
that was not recorded has no answer here, which is not the fault of any model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.marks import Fault
from edison_ci.errors import Location, UsageError
from edison_ci.providers.recording import MAX_BYTES, Recorded, read_recording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from edison_ci.documents.files import Tree
    from edison_ci.records import Completion, Request

_RECORDED_AS = (
    ("openai", "https://api.openai.com/v1"),
    ("anthropic", "https://api.anthropic.com"),
    ("ollama", "http://localhost:11434/v1"),
    ("vertex", ""),
    ("bedrock", ""),
    ("litellm", ""),
    ("sim", ""),
    ("local", ""),
)
"""Providers at their own addresses. Who else was recorded can be replayed by `--replay` only."""


class Unrecorded(CallError):
    """The recording has no answer to this call; its cell is skipped."""

    def __init__(self, address: str) -> None:
        message = f"the recording has no answer to call {address[:12]}"
        super().__init__(ErrorKind.BAD_RESPONSE, message, charged=False)
        self.address = address


class ReplayProvider:
    """Answers from a recording: the newest take of each address."""

    def __init__(self, answers: Iterable[Recorded]) -> None:
        self._answers: dict[str, Recorded] = {}
        for answer in answers:
            known = self._answers.get(answer.address)
            if known is None or known.take <= answer.take:
                self._answers[answer.address] = answer

    def __len__(self) -> int:
        return len(self._answers)

    async def complete(self, request: Request) -> Completion:
        """Return the recorded answer, or raise Unrecorded."""
        answer = self.recorded(request)
        if answer is None:
            raise Unrecorded(request.address)
        return answer.completion

    def recorded(self, request: Request) -> Recorded | None:
        """Return the recorded answer to a call, with what it cost, if there is one."""
        found = self._answers.get(request.address)
        if found is None and request.provider == "replay":
            others = (self._answers.get(address) for address in _other_addresses(request))
            found = next((answer for answer in others if answer is not None), None)
        return found


def _other_addresses(request: Request) -> Iterator[str]:
    """Yield the addresses the same call has with the providers it may have been recorded with."""
    for provider, endpoint in _RECORDED_AS:
        yield replace(request, provider=provider, endpoint=endpoint).address


def open_recording(path: Path) -> ReplayProvider:
    """Return the replay of a recording anywhere on this machine."""
    try:
        with path.open("rb") as stream:
            return ReplayProvider(read_recording(stream, str(path)))
    except OSError as error:
        hint = "make one with: edison run --record FILE"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None


def open_replay(path: str, tree: Tree) -> ReplayProvider:
    """Return the replay of a recording in the project; raises UsageError with file and line."""
    return ReplayProvider(recorded_in(path, tree))


def recorded_in(path: str, tree: Tree) -> Iterator[Recorded]:
    """Yield the answers of a recording in the project; raises UsageError with file and line."""
    try:
        with tree.open(path, max_bytes=MAX_BYTES) as stream:
            yield from read_recording(stream, path)
    except Fault as fault:
        raise UsageError(fault.message, where=Location(path), hint=fault.hint) from None
