"""The model of NAME.about.yaml: description, tags and owner of a dataset, for readers.

It stands beside the file with the cases, whose formats have no room for it, and changes no result.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edison_ci.config.project import Version
from edison_ci.shape import Shape, items

Tag = Annotated[str, Field(min_length=1, max_length=50)]


class DatasetAbout(Shape):
    """datasets/NAME.about.yaml: description, tags and owner of the dataset NAME."""

    version: Version = 1
    description: str = Field("", max_length=2_000, description="What the cases are.")
    tags: Annotated[tuple[Tag, ...], items(0, 50)] = Field(
        (), description="Words to find it by; cases have their own tags."
    )
    owner: str = Field("", max_length=100, description="Person or team responsible.")

    def has(self, text: str) -> bool:
        """Whether a text in small letters is in it."""
        return any(text in part.casefold() for part in (self.description, self.owner, *self.tags))
