"""A server that the base of a proposal trusts, and a desk, as the core has them."""

from tests.cli.conftest import ours
from tests.web.conftest import desk, one_desk

__all__ = ["desk", "one_desk", "ours"]
