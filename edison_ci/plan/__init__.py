"""What would a run do, and what would it cost?"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """Lets `edison_ci.plan` be the function everywhere.

    Importing a part of this package makes Python set `edison_ci.plan` to the package itself, where
    the public interface has the function; so the package can be called like it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module(f"{__name__}.plan").plan(*args, **kwargs)


sys.modules[__name__].__class__ = _Verb
