"""The models of .edison/secrets.yaml: keys of models, sealed so that they can be committed."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from edison_ci.config.project import Version
from edison_ci.documents.decoding import KEY_PATTERN, at_least_pattern
from edison_ci.shape import Date, EnvName, Shape, TextPattern, items, repeats, wrong

PRIVATE_KEY = "EDISON_PRIVATE_KEY"
"""Environment variable of the private key, for CI; during a rotation it may hold two."""
_HEAD = (
    "# yaml-language-server: $schema=schemas/secrets.schema.json\n"
    "# Written by `edison secrets`; commit it. Only the private key opens what is in it.\n"
    "# In a pull request the base commit's copy counts.\n"
    "version: 1\n"
)

PublicKey = Annotated[
    str,
    TextPattern(
        KEY_PATTERN,
        "a public key for sealed keys",
        "restore the line from Git; or write it: edison secrets keygen",
        "key",
    ),
]
Box = Annotated[
    str,
    Field(max_length=200_000),
    TextPattern(
        at_least_pattern(28),
        "a sealed box",
        "it was cut or edited: restore it from Git, or seal the key again",
    ),
]


class SealedKey(Shape):
    """A key that only the private key opens."""

    name: EnvName = Field(description="Variable that a model names, such as OPENAI_API_KEY.")
    since: Date = Field(description="Day on which it was sealed.")
    box: Box = Field(description="The sealed box, with name and repository inside.")


class SecretsFile(Shape):
    """.edison/secrets.yaml: keys of models, sealed for one private key."""

    version: Version = 1
    public_key: PublicKey | None = Field(None, description="Key that new boxes are sealed for.")
    keys: Annotated[tuple[SealedKey, ...], items(0, 200)] = Field((), description="Sealed keys.")

    def broken_rules(self) -> Iterator[Exception]:
        """Yield keys that are listed twice, and boxes without the public key of theirs."""
        for index, first in repeats(key.name for key in self.keys):
            message = f"{self.keys[index].name} is listed twice, first in entry {first + 1}"
            yield wrong("duplicate", message, "remove one of them", at=("keys", index, "name"))
        if self.keys and self.public_key is None:
            message = "there are sealed keys, and no public_key"
            yield wrong("missing", message, "restore the line from Git", at=("keys",))

    def of(self, name: str) -> SealedKey | None:
        """Return the sealed key of a variable; None if there is none."""
        return next((key for key in self.keys if key.name == name), None)

    def with_key(self, key: SealedKey) -> "SecretsFile":
        """Return the file with a key, in the place of the former one of this name."""
        kept = [other for other in self.keys if other.name != key.name]
        both = sorted([*kept, key], key=lambda entry: entry.name)
        return self.model_copy(update={"keys": tuple(both)})

    def without_key(self, name: str) -> "SecretsFile":
        """Return the file without a key."""
        return self.model_copy(update={"keys": tuple(k for k in self.keys if k.name != name)})

    def text(self) -> str:
        """Return the text of the file; the same entries give the same bytes."""
        lines = [_HEAD, f"public_key: {self.public_key}\n"]
        lines += ["keys:\n"] if self.keys else []
        for key in self.keys:
            lines += [f"  - name: {key.name}\n", f"    since: {key.since}\n"]
            lines.append(f"    box: {key.box}\n")
        return "".join(lines)
