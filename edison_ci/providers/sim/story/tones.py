"""Is a tone a serious or a light one?"""

from __future__ import annotations

import re

_LIGHT = re.compile(
    r"comic|funny|wry|playful|giddy|cheer|breezy|whimsic|warm|fond|swash|silly|deadpan|petty|"
    r"breathless|patient|smug|encourag|loud|relaxed|sly|curious|gentle|kind|tender|generous|"
    r"cosy|affection|hopeful|sunlit|sooth|komisch|cálido|czuły|ironico|salty|wounded"
)


def is_serious(tone: str) -> bool:
    """Return whether jokes would break the tone; an unknown tone counts as serious."""
    return _LIGHT.search(tone.lower()) is None
