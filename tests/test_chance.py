"""No test depends on chance: what it draws is seeded, and its keys are the same every time."""

from __future__ import annotations

import ast
import random
import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT, seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DRAWS = {
    "generate_key", "generate_keys", "generate_private_key", "random_serial_number",
    "SystemRandom", "token_bytes", "token_hex", "token_urlsafe", "urandom", "uuid1", "uuid4",
}  # fmt: skip
"""Functions that give something else each time, by whatever module."""
NEED_A_SEED = {"Random", "default_rng", "RandomState", "SeedSequence"}
"""Functions that do so unless they are given a seed."""
SHARED = {"random", "np.random", "numpy.random"}
"""Generators of the process: `pytest_runtest_setup` seeds them for libraries, as what a test draws
from them depends on what ran before it in the same process."""
SEEDED = {*NEED_A_SEED, "Generator", "PCG64", "BitGenerator"}
"""What may be used of those modules."""

MAY = {
    (
        "features/cluster/test_certificates.py",
        "generate_private_key",
    ): "no result depends on its keys",
    ("conftest.py", "random.seed"): "seeds it for each test",
    ("documents/test_signatures.py", "generate_keys"): "shows that keys differ",
    ("access/test_sealed_keys.py", "generate_key"): "shows that keys differ",
    ("test_chance.py", "random.getrandbits"): "shows that the generator is seeded",
}
"""What draws by chance, and why it may."""


def draws_in(tree: ast.Module) -> Iterator[str]:
    """Yield the calls in a module that may give something else each time."""
    modules = set(imported_modules(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"random", "secrets"}:
            yield from (alias.name for alias in node.names if alias.name not in SEEDED)
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        start, _, last = name.rpartition(".")
        if last in DRAWS or (last in NEED_A_SEED and not node.args and not node.keywords):
            yield last
            continue
        shared = start in SHARED and start.split(".")[0] in modules and last not in SEEDED
        if shared or (last == "generate" and start.endswith("PrivateKey")):
            yield name


def dotted(node: ast.AST) -> str:
    """Return a name such as np.random.normal; what it is an attribute of may be a call."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules that are imported whole; elsewhere they are variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)


def found_in(folder: Path) -> set[tuple[str, str]]:
    named = re.compile(rf"\b(?:{'|'.join(DRAWS | NEED_A_SEED)}|random|secrets|generate)\b")
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    return {
        (path.relative_to(folder).as_posix(), name)
        for path, text in texts.items()
        if named.search(text)
        for name in draws_in(ast.parse(text))
    }


def test_tests_draw_nothing_without_a_seed() -> None:
    """Take keys from tests/fixed_keys.py, and numbers from a generator with a seed."""
    assert found_in(ROOT / "tests") == set(MAY)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import uuid\nuuid.uuid4().hex", "uuid4"),
        ("from uuid import uuid4\nuuid4()", "uuid4"),
        ("import os\nos.urandom(3)", "urandom"),
        ("import secrets\nsecrets.token_hex(4)", "token_hex"),
        ("from secrets import choice\nchoice('ab')", "choice"),
        ("import random\nrandom.random()", "random.random"),
        ("from random import shuffle\nshuffle([])", "shuffle"),
        ("import random\nrandom.Random()", "Random"),
        ("from random import Random\nRandom()", "Random"),
        ("import random\nrandom.SystemRandom().random()", "SystemRandom"),
        ("import numpy as np\nnp.random.default_rng()", "default_rng"),
        ("import numpy as np\nnp.random.normal(0, 1)", "np.random.normal"),
        ("import numpy\nnumpy.random.seed(1)", "numpy.random.seed"),
        ("from nacl.public import PrivateKey\nPrivateKey.generate()", "PrivateKey.generate"),
        ("from a import generate_keys\ngenerate_keys()", "generate_keys"),
    ],
)
def test_a_call_without_a_seed_is_noticed(text: str, name: str) -> None:
    assert [*draws_in(ast.parse(text))] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "import random\nrandom.Random(1).random()",
        "from random import Random\nRandom(f'{seed} {name}').shuffle(rows)",
        "import numpy as np\nnp.random.default_rng(7).normal(0, 1)",
        "def test_it(random): random.choice('ab')",
        "from tests.fixed_keys import signing_keys\nsigning_keys('ours')",
    ],
)
def test_a_call_with_a_seed_is_not_minded(text: str) -> None:
    assert [*draws_in(ast.parse(text))] == []


def test_the_generator_that_libraries_share_is_seeded(request: pytest.FixtureRequest) -> None:
    expected = random.Random(seed_of(request.node.nodeid)).getrandbits(64)
    assert random.getrandbits(64) == expected
