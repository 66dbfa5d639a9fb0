"""Counting of tokens, and cases that exceed the context of a model."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import Location, Problem, Severity
from edison_ci.numeric import counted
from edison_ci.templating.templates import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.models import Configuration, Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Json

_BYTES_PER_TOKEN = 4
_PER_MESSAGE = 4
_PER_REPLY = 3  # OpenAI's chat format opens the answer with three tokens
_CHUNK = 10_000
_NEWEST = "o200k_base"
_VOCABULARIES = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""sha256 of each vocabulary; tiktoken would download one that is missing or another."""
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A way to count tokens, and whether it is the model's own."""

    method: str
    exact: bool
    count: Callable[[str], int]
    per_reply: int = 0

    def of_messages(self, texts: Sequence[str]) -> int:
        """Return the tokens of a chat, with what each message adds around its text."""
        return sum(self.count(text) + _PER_MESSAGE for text in texts) + self.per_reply


def estimate_tokens(text: str) -> int:
    """Return a rough count: a token is about four bytes."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


ESTIMATE = TokenCounter("about 4 bytes a token", False, estimate_tokens)


def counter_for(model: Model) -> TokenCounter:
    """Return the model's tokenizer where one is installed, else the estimate."""
    if model.provider not in ("openai", "azure") or find_spec("tiktoken") is None:
        return ESTIMATE
    return _counter(model.model.lower())


@cache
def _counter(model: str) -> TokenCounter:
    import tiktoken

    try:
        encoding = tiktoken.encoding_name_for_model(model)
    except KeyError:
        return _tiktoken(_NEWEST, exact=False)
    return _tiktoken(encoding, exact=True)


@cache
def _tiktoken(encoding: str, *, exact: bool) -> TokenCounter:
    """Return tiktoken with a vocabulary that litellm carries; nothing is downloaded."""
    import tiktoken

    folder = _folder_with(encoding)
    if folder is None:
        return ESTIMATE
    with _cache_in(folder):
        encode = tiktoken.get_encoding(encoding).encode_ordinary

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except ValueError:  # a run of blanks that is too long for its regular expression
            parts = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
            return sum(len(encode(part)) for part in parts)

    method = f"tiktoken {encoding}" if exact else f"tiktoken {encoding}, of another model"
    return TokenCounter(method, exact, count, _PER_REPLY)


def _folder_with(encoding: str) -> Path | None:
    """Return the folder of litellm that has this very vocabulary under tiktoken's name for it."""
    litellm = find_spec("litellm")
    if litellm is None or not litellm.origin or encoding not in _VOCABULARIES:
        return None
    folder = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
    name = hashlib.sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
    try:
        data = (folder / name).read_bytes()
    except OSError:
        return None
    return folder if hashlib.sha256(data).hexdigest() == _VOCABULARIES[encoding] else None


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


_LISTED = 5
_WIDEST = 4
"""Bytes of a character at most."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A prompt that does not fit into the context of a model."""

    configuration: Configuration
    alone: bool
    """Whether the input alone is too long, without `max_tokens`."""

    @property
    def text(self) -> str:
        """What the prompt is too long for, and what comes of it."""
        name, context = self.configuration.name, _context(self.configuration)
        longest = _longest_answer(self.configuration)
        also = "" if self.alone else f", with max_tokens ({longest:,}),"
        refused = "will be refused" if self.alone else "may be refused"
        return f"longer{also} than the context of {name} ({context:,} tokens) and {refused}"

    @property
    def hint(self) -> str:
        """What to do about it."""
        lower = "" if self.alone else "lower max_tokens, "
        return f"{lower}shorten the input, or use a model with a larger context"


def exceeded(configuration: Configuration, prompt: Prompt, texts: Sequence[str]) -> Excess | None:
    """Return how a prompt, rendered to these texts, exceeds a context; None if it fits."""
    context, counter = _context(configuration), counter_for(configuration.model)
    if not context:
        return None
    tokens = counter.of_messages([*texts]) + counter.count(_sent_with(prompt))
    if tokens + _longest_answer(configuration) <= context:
        return None
    return Excess(configuration, alone=tokens > context)


def _context(configuration: Configuration) -> int:
    """Return the tokens of the context; 0 if they are unknown."""
    return configuration.model.capabilities.context or 0


def _longest_answer(configuration: Configuration) -> int:
    return int(configuration.params.get("max_tokens", 0))


def _sent_with(prompt: Prompt) -> str:
    """Return the tools and the output schema, which are sent with every case."""
    extras = (prompt.tools, prompt.output)
    return "".join(as_text(extra) for extra in extras if extra is not None)


class ContextCheck:
    """Finds the cases of a prompt that do not fit into the context of a model.

    Tokens are counted only for cases that could be too long: a token has at least one byte.
    """

    def __init__(self, prompt: Prompt, configurations: Iterable[Configuration]) -> None:
        self._prompt = prompt
        self._configurations = {c.name: c for c in configurations if _context(c)}
        around = _PER_REPLY + _PER_MESSAGE * len(prompt.sections) + len(_sent_with(prompt).encode())
        rooms = [_context(c) - _longest_answer(c) for c in self._configurations.values()]
        self._room = min(rooms, default=0) - around
        """Bytes that fit into every context."""
        sources = [section.template.source for section in prompt.sections]
        self._chars = sum(map(len, sources))
        self._times = {name: sum(s.count(name) for s in sources) for name in prompt.inputs}
        self._found: dict[tuple[str, bool], tuple[int, list[str]]] = {}
        """Number and first ids of cases, by configuration and whether the input is too long."""

    def may_exceed(self, inputs: Mapping[str, Json]) -> bool:
        """Whether a case of a plain prompt could be too long, decided without rendering."""
        if not self._configurations:
            return False
        size = self._chars
        for name, times in self._times.items():
            size += times * len(as_text(inputs.get(name, self._prompt.inputs[name].default)))
        return _WIDEST * size > self._room

    def add(self, case_id: str, texts: Sequence[str]) -> None:
        """Count a case that is rendered to these texts."""
        if not self._configurations or sum(len(text.encode()) for text in texts) <= self._room:
            return
        for name, configuration in self._configurations.items():
            excess = exceeded(configuration, self._prompt, texts)
            if excess is not None:
                count, listed = self._found.get((name, excess.alone), (0, []))
                if count < _LISTED:
                    listed.append(case_id)
                self._found[name, excess.alone] = (count + 1, listed)

    def problems(self, cases: int) -> Iterator[Problem]:
        """Yield a warning for each context that some of the cases exceed."""
        where = Location(self._prompt.path, self._prompt.sections[-1].line, 1)
        for (name, alone), (count, listed) in self._found.items():
            excess = Excess(self._configurations[name], alone)
            ids = ", ".join(listed) + (", ..." if count > len(listed) else "")
            verb = "is" if count == 1 else "are"
            message = f"{count:,} of {counted(cases, 'case')} {verb} {excess.text}: {ids}"
            yield Problem(where, "context", message, excess.hint, Severity.WARNING)
