"""Tokens of a text, for a model."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edison_ci.config.models import Model

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

    def of_messages(self, texts: list[str]) -> int:
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
