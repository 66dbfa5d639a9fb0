"""Errors, problems with their locations, and exit codes.

    EdisonError                     message, where, hint; `exit_code` belongs to the class
    ├── UsageError            2     the command line is wrong
    ├── ConfigError           2     files of the project are invalid; carries every problem found
    ├── ProjectNotFound       2     no edison.yaml here or above
    ├── BusyError             2     the experiment is being run by another process
    ├── RoleError             2     the role of the user does not allow it
    ├── StoreError            3     the results file could not be read or written
    ├── IncompleteRun         3     shards of a run are missing, or not finished
    ├── CallFailed            3     a model did not answer
    ├── ForgeError            3     GitHub refused, was unavailable, or returned an unknown reply
    ├── DeliveryError         3     a notification was not accepted
    ├── OutOfBudget           4     a budget has no room for the next call
    └── Interrupted         130     the user stopped it

A failed gate is a decision, not an exception. Every other exception is a bug and ends in
`ExitCode.BUG`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, ClassVar

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExitCode(IntEnum):
    """Exit codes, which are a stable interface for scripts."""

    DONE = 0
    GATE_FAILED = 1
    INVALID = 2
    NOT_MEASURED = 3
    BUDGET = 4
    UNCLEAR = 5
    BUG = 70
    PAUSED = 130

    @property
    def meaning(self) -> str:
        """The meaning in one line, printed in the README."""
        return _MEANING[self]


_MEANING = {
    ExitCode.DONE: "done; gates passed or were not decisive",
    ExitCode.GATE_FAILED: "a gate failed, or an alert is open (`alerts check`)",
    ExitCode.INVALID: "wrong usage, an invalid file, a refused role, a busy experiment",
    ExitCode.NOT_MEASURED: "could not measure: too many errors, no judge, no database",
    ExitCode.BUDGET: "stopped by a budget; resumable",
    ExitCode.UNCLEAR: "inconclusive, and a gate has `if_unclear: fail`",
    ExitCode.BUG: "a bug in edison",
    ExitCode.PAUSED: "paused by SIGINT or SIGTERM; resumable",
}


class Severity(StrEnum):
    """Severity of a problem: an error stops every command, a warning does not.

    A note is about this machine or a later command, not about the files.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a file of the project; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)

    @property
    def order(self) -> tuple[str, int, int]:
        """Sort key: file, line, column."""
        return (self.file, self.line or 0, self.column or 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with its location and a hint."""

    where: Location
    code: str
    """Stable kebab-case name of the broken rule."""
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        prefix = "" if self.severity is Severity.ERROR else f"{self.severity}: "
        return f"{self.where}: {prefix}{self.message}{hint}"


class EdisonError(Exception):
    """An error that the user can act on, with message, location and hint."""

    exit_code: ClassVar[ExitCode] = ExitCode.BUG
    code: ClassVar[str] = "error"

    def __init_subclass__(cls, *, exit_code: ExitCode | None = None, code: str = "") -> None:
        """Set the exit code and the name of a kind of error; others are those of its base."""
        super().__init_subclass__()
        cls.exit_code, cls.code = exit_code or cls.exit_code, code or cls.code

    def __init__(self, message: str, *, where: Location | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class UsageError(EdisonError, exit_code=ExitCode.INVALID, code="usage"):
    """The command line is wrong."""


class ProjectNotFound(EdisonError, exit_code=ExitCode.INVALID, code="no-project"):
    """There is no `edison.yaml` here or in any folder above."""


class BusyError(EdisonError, exit_code=ExitCode.INVALID, code="busy"):
    """Another process runs the same experiment."""


class TrustError(UsageError):
    """A key would go to a host that is not trusted."""


class DecidedAlready(UsageError):
    """Another person has decided about a suggestion meanwhile."""


class RoleError(EdisonError, exit_code=ExitCode.INVALID, code="role"):
    """The role of the user does not allow the action."""


class StoreError(EdisonError, exit_code=ExitCode.NOT_MEASURED, code="store"):
    """The results file could not be read or written; stored data is safe."""

    @classmethod
    def of(cls, error: BaseException, file: str = "the results file") -> StoreError:
        """Return the error for a failure of SQLite, with advice."""
        text = str(error)
        advice = (hint for words, hint in _ADVICE if any(word in text for word in words))
        return cls(f"{file}: {text}", hint=next(advice, _CHECK))


_CHECK = "check the disk, and run `edison doctor`; nothing that was stored is lost"
_ADVICE = (
    (("locked", "busy"), "another program has locked the file; try again when it is done"),
    (("full",), "the disk is full: free some space, then resume"),
    (("readonly", "read-only"), "the file or its folder cannot be written"),
    (
        ("malformed", "not a database"),
        "the file is damaged; check it with `edison admin db check`, or restore a backup",
    ),
    (("unable to open",), "check the permissions of the file and its folder"),
)
"""What to do about a failure of SQLite, by words in its message."""


class IncompleteRun(EdisonError, exit_code=ExitCode.NOT_MEASURED, code="incomplete"):
    """Shards of a run are missing, so there is no verdict."""


class CallFailed(EdisonError, exit_code=ExitCode.NOT_MEASURED, code="call"):
    """A model did not answer, and the command needs the answer."""


class OutOfBudget(EdisonError, exit_code=ExitCode.BUDGET, code="budget"):
    """A budget has no room for the next call; stored answers are kept."""


class Interrupted(EdisonError, exit_code=ExitCode.PAUSED, code="stopped"):
    """The user stopped it; stored answers are kept."""


class ForgeFault(StrEnum):
    """Why a request to a forge failed."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    INVALID = "invalid"
    CONFLICT = "conflict"
    LIMITED = "limited"
    UNAVAILABLE = "unavailable"
    """The change may have been made: check before a retry."""
    MOVED = "moved"
    UNREADABLE = "unreadable"


class ForgeError(EdisonError, exit_code=ExitCode.NOT_MEASURED, code="forge"):
    """A request to GitHub, or another forge, failed."""

    def __init__(
        self, message: str, *, fault: ForgeFault, status: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.fault, self.status = fault, status


class DeliveryError(EdisonError, exit_code=ExitCode.NOT_MEASURED, code="delivery"):
    """A notification was not accepted."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        retry_after_s: float | None = None,
        this_message: bool = False,
        unset: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.unset = unset
        """Whether this process lacks a variable, which another one may have."""
        self.this_message = this_message
        """Whether this message was refused, so that others may be accepted."""


class ConfigError(EdisonError, exit_code=ExitCode.INVALID, code="invalid"):
    """Files of the project are invalid; `problems` lists all problems, sorted."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted_problems(problems)
        first = self.problems[0]
        count = len(self.problems)
        message = first.message if count == 1 else f"{first.message} (and {count - 1} more)"
        super().__init__(message, where=first.where, hint=first.hint)


def sorted_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, in the order of files and lines."""
    return tuple(sorted(set(problems), key=lambda p: (*p.where.order, p.code, p.message)))
