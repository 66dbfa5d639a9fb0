"""How many tokens is a text, for a model?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.config.models import Model

_BYTES_PER_TOKEN = 4
_PER_MESSAGE = 4
_OLD_VOCABULARY = ("gpt-4-", "gpt-3.5", "gpt-4", "text-embedding")


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A way to count tokens, and whether it is the model's own."""

    method: str
    exact: bool
    count: Callable[[str], int]

    def of_messages(self, texts: list[str]) -> int:
        """Return the tokens of a chat, with what each message adds around its text."""
        return sum(self.count(text) + _PER_MESSAGE for text in texts)


def estimate_tokens(text: str) -> int:
    """Return a rough count: a token is about four bytes."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


ESTIMATE = TokenCounter("about 4 bytes a token", False, estimate_tokens)


def counter_for(model: Model) -> TokenCounter:
    """Return the model's tokenizer where one is installed, else the estimate."""
    if model.provider not in ("openai", "azure"):
        return ESTIMATE
    name = model.model.lower()
    old = name.startswith(_OLD_VOCABULARY) and not name.startswith(("gpt-4o", "gpt-4.1", "gpt-4.5"))
    return _tiktoken("cl100k_base" if old else "o200k_base")


@cache
def _tiktoken(encoding: str) -> TokenCounter:
    """Return tiktoken with the vocabularies that litellm carries; nothing is downloaded."""
    litellm = find_spec("litellm")
    if find_spec("tiktoken") is None or litellm is None or not litellm.origin:
        return ESTIMATE
    folder = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
    if not folder.is_dir():
        return ESTIMATE
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        import tiktoken

        vocabulary = tiktoken.get_encoding(encoding)
    except (OSError, ValueError):  # the vocabulary is not in the folder, and there is no network
        return ESTIMATE
    finally:
        if before is None:
            os.environ.pop("TIKTOKEN_CACHE_DIR", None)
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before

    def count(text: str) -> int:
        return len(vocabulary.encode(text, disallowed_special=()))

    return TokenCounter(f"tiktoken {encoding}", True, count)
