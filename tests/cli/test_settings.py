"""`adadino settings`: every path that `train` takes, with the default that it has."""

from __future__ import annotations

import json

from adadino import schema
from adadino.training.config import RunConfig, load_run


def flat(said: dict, path: str = "") -> dict:
    found = {}
    for name, value in said.items():
        inner = flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
        found |= inner
    return found


def test_it_lists_every_setting_with_its_default_and_help(adadino):
    said = json.loads(adadino("settings", "--json").out)["settings"]
    assert {row["path"]: row["default"] for row in said} == flat(schema.to_dict(RunConfig()))
    assert [row["path"] for row in said if not row["help"]] == []


def test_what_it_prints_can_be_given_to_train(adadino):
    said = json.loads(adadino("settings", "train.", "--json").out)["settings"]
    run = load_run(None, [f"{row['path']}={json.dumps(row['default'])}" for row in said])
    assert run.train == RunConfig().train


def test_people_search_in_it_by_a_word(adadino):
    text = adadino("settings", "decay_every").out
    assert "train.decay_every: int = 1" in text
    assert "train.lr:" not in text
    missing = adadino("settings", "nonsense")
    assert (missing.code, missing.out) == (1, "")
    assert "no setting is about 'nonsense'" in missing.err
