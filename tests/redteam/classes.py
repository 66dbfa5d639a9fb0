"""Every class of attack, in the order in which they are tried."""

from __future__ import annotations

from tests.redteam import (
    answers,
    approvals,
    bundles,
    code,
    events,
    files,
    gates,
    judges,
    keys,
    money,
    programs,
    replies,
    results,
    schemas,
    terms,
    visitors,
)

_CLASSES = (
    *(keys, answers, results, bundles, schemas, gates, money, terms, approvals, visitors),
    *(replies, events, files, code, programs, judges),
)
ATTACKS = tuple(attack for each in _CLASSES for attack in each.ATTACKS)
