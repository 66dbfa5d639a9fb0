"""Every class of attack, in the order in which they are tried."""

from __future__ import annotations

from tests.redteam import events, gates, keys, money, results

ATTACKS = (*keys.ATTACKS, *results.ATTACKS, *gates.ATTACKS, *money.ATTACKS, *events.ATTACKS)
