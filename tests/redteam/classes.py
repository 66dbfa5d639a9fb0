"""Every class of attack, in the order in which they are tried."""

from __future__ import annotations

from tests.redteam import (
    answers,
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
)

_CLASSES = (
    *(keys, answers, results, schemas, gates, money, terms, replies, events, files, code, programs),
    judges,
)
ATTACKS = tuple(attack for each in _CLASSES for attack in each.ATTACKS)
