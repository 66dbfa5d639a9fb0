"""edison admin schema prints what is shipped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.resources import KINDS, MESSAGES
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_printed_byte_for_byte(edison: Edison, folder: Folder, kind: str) -> None:
    done = edison(folder, "admin", "schema", kind)
    shipped = (ROOT / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8")
    assert (done.out, done.err, done.code) == (shipped, "", 0)
    assert json.loads(done.out)["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_without_a_kind_the_kinds_are_listed(edison: Edison, folder: Folder) -> None:
    assert edison(folder, "admin", "schema").out.split() == [*KINDS, *MESSAGES]
