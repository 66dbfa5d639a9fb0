"""Folders that many tests begin with."""

from tests.cli.conftest import kept

__all__ = ["kept"]
