"""The kinds of sandbox that this machine allows."""

from __future__ import annotations

import pytest

from edison_ci.checks.child import enters

__all__ = ["namespaces", "sandbox"]

namespaces = pytest.mark.skipif(
    not enters("namespaces"), reason="this machine does not allow namespaces"
)


@pytest.fixture(params=["namespaces", "landlock"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run code in one kind of sandbox."""
    if not enters(request.param):
        pytest.skip(f"this machine does not allow {request.param}")
    monkeypatch.setattr("edison_ci.checks.child.sandbox", lambda: request.param)
    return str(request.param)
