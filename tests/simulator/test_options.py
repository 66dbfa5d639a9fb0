from __future__ import annotations

import dataclasses

import pytest

from edison_ci.config import model_entry
from edison_ci.errors import UsageError
from edison_ci.simulator.options import SimOptions


def test_options_come_from_a_mapping() -> None:
    options = SimOptions.from_mapping({"noise": 0.2, "seed": 7, "file": None})
    assert (options.noise, options.seed, options.file) == (0.2, 7, None)


def test_no_options_are_the_defaults() -> None:
    assert SimOptions.from_mapping({}) == SimOptions()


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="speed") as caught:
        SimOptions.from_mapping({"speed": 1})
    assert "latency_ms" in caught.value.hint


def test_options_and_defaults_agree_with_what_config_accepts() -> None:
    accepted = model_entry.OPTIONS["sim"]
    mine = {field.name: field.default for field in dataclasses.fields(SimOptions)}
    assert mine == {name: field.default for name, field in accepted.model_fields.items()}
