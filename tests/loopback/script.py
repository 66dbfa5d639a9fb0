"""What does the loopback server do with a request: which rule fits, and what does it say?

A script is a list of rules. The first rule that fits a chat request applies, none means a good
answer. In JSON (`--script FILE` holds a list) a rule is one flat object:

    which requests       number: 3 or [1, 2]      counted from 1 over all chat requests
                         contains: "text"         somewhere in the messages
                         model: "name"
                         times: 2                 only the first two that fit
                         for_s: 1.5               only this long after the server's first request
    what happens         do: one of the deeds below, `answer` unless said
                         latency_s: 0.2           wait first, whatever is done then
                         held: true               wait first until the server's `release()`
                         until: event             wait until a test sets this threading.Event
                         charged: true            whether the ledger gets a line; each deed has its
                                                  own default
    details              status, headers, body    of `status` and `answer`; body may be JSON or text
                         text                     the answer's text; in a test it may be a function
                                                  of what was said
                         usage                    put in the place of the real usage; null: none
                         served_model             the model that the reply names
                         location                 of `redirect`
                         interval_s               of `dribble`

Deeds, and whether they are charged:

    answer          yes   a good reply, with the details above
    status          no    `status` with `headers` and `body`
    hang            yes   reads the request and never replies
    close           yes   reads the request and closes the connection
    reset           yes   the same with a RST
    truncate        yes   half the JSON with the Content-Length of half, then goes on as usual
    short           yes   half the JSON with the Content-Length of the whole, then closes
    bad_chunk       yes   chunked, the second chunk is garbage
    dribble         yes   one byte each `interval_s`
    endless         yes   chunked filler that does not end
    gzip            yes   a good reply, compressed
    gzip_bomb       yes   256 MB of blanks in 256 KB
    redirect        no    307 to `location`
    html            yes   200 with a web page
    empty           yes   200 with nothing
    error_in_200    yes   200 with an `error` object
    invalid_json    yes   200 with text that is not JSON
    wrong_schema    yes   200 with JSON that is no completion
    garbage         yes   bytes that are not HTTP
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

UNCHARGED = frozenset({"status", "redirect"})
DEEDS = frozenset(
    {"answer", "status", "hang", "close", "reset", "truncate", "short", "bad_chunk", "dribble",
     "endless", "gzip", "gzip_bomb", "redirect", "html", "empty", "error_in_200", "invalid_json",
     "wrong_schema", "garbage"}
)  # fmt: skip
SAME = "the usage that was counted"


@dataclass(slots=True)
class Rule:
    """One line of a script; see the module's docstring."""

    do: str = "answer"
    number: int | tuple[int, ...] | None = None
    contains: str = ""
    model: str | None = None
    times: int | None = None
    for_s: float | None = None
    latency_s: float = 0.0
    held: bool = False
    until: Event | None = None
    charged: bool | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    text: str | Callable[[str], str] | None = None
    usage: Any = SAME
    served_model: str | None = None
    location: str = ""
    interval_s: float = 0.05
    applied: int = 0
    """How many requests it has been applied to."""

    def __post_init__(self) -> None:
        assert self.do in DEEDS, f"{self.do!r} is none of {sorted(DEEDS)}"

    @property
    def is_charged(self) -> bool:
        """Whether the ledger gets a line."""
        return self.do not in UNCHARGED if self.charged is None else self.charged

    def fits(self, number: int, model: str, said: str, elapsed_s: float) -> bool:
        """Whether the rule is for this request."""
        numbers = (self.number,) if isinstance(self.number, int) else self.number
        return (
            (numbers is None or number in numbers)
            and self.contains in said
            and self.model in (None, model)
            and (self.times is None or self.applied < self.times)
            and (self.for_s is None or elapsed_s < self.for_s)
        )


def rule(**values: Any) -> Rule:
    """Return the rule that a JSON object spells."""
    unknown = set(values) - {f.name for f in fields(Rule)}
    assert not unknown, f"a rule has no {unknown}"
    if isinstance(values.get("number"), list):
        values["number"] = tuple(values["number"])
    if "status" in values and "do" not in values and values["status"] >= 300:
        values["do"] = "status"
    return Rule(**values)
