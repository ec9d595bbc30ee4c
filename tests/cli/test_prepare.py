"""`adadino prepare`: what it prints, and how it ends."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from adadino.cli.train import parse_overrides
from adadino.data.folder import PairFolder, fingerprint
from adadino.data.synthetic import write_dataset
from adadino.training.config import load_run
from adadino.training.data import open_splits
from tests.data.miniatures import tree


@pytest.fixture
def source(tmp_path):
    write_dataset(tmp_path / "source", {"train": 2, "val": 1, "test": 1}, size=32)
    return tmp_path / "source"


def test_people_see_counts_and_the_next_command(adadino, source, tmp_path):
    dest = tmp_path / "made"
    said = adadino("prepare", "folder", source, dest, "--tile", 16)
    assert said.code == 0
    digest = fingerprint(PairFolder(dest, "train").pairs)
    assert digest in said.out
    rows = [line.split() for line in said.out.splitlines() if digest in line]
    assert {"train", "8"} <= set(rows[0])
    assert said.out.splitlines()[-1].startswith("next: adadino train ")
    assert "configs/folder.yaml" not in said.out  # there is none
    assert "preparing folder: " in said.err
    assert adadino("prepare", "folder", source, dest, "--tile", 16, "-q").err == ""


@pytest.mark.filterwarnings("always::adadino.errors.AdaDINOWarning")
def test_a_source_that_was_mended_is_cut_anew_by_the_same_command(adadino, source, tmp_path):
    command = ("prepare", "folder", source, tmp_path / "made", "--tile", 16)
    image = next((source / "test" / "B").iterdir())
    whole = image.read_bytes()
    image.write_bytes(whole[:-200])
    said = adadino(*command)
    assert said.code == 1
    assert image.name in said.err
    image.write_bytes(whole)
    other = adadino(*command[:-1], 8)
    assert other.code == 1
    assert "was left by a run with other settings" in other.err
    said = adadino(*command, "-q")
    assert said.code == 0
    assert said.err.startswith("adadino: warning: the source of ")
    assert said.err.endswith("changed since the interrupted run; everything is cut again.\n")
    assert said.err.count("\n") == 1
    assert adadino(*command[:3], tmp_path / "whole", *command[4:]).code == 0
    assert tree(tmp_path / "made") == tree(tmp_path / "whole")


def test_json_is_the_manifest(adadino, source, tmp_path):
    dest = tmp_path / "made"
    said = adadino("prepare", "folder", source, dest, "--tile", 16, "--json")
    assert (said.code, said.err) == (0, "")
    manifest = json.loads(said.out)
    assert manifest["splits"]["train"]["pairs"] == 8
    assert manifest["settings"]["tile"] == 16


@pytest.mark.parametrize("tile", [256, 20])
def test_the_next_commands_are_complete(adadino, tmp_path, tile):
    write_dataset(tmp_path / "in", {"train": 2, "val": 1}, size=256)
    said = adadino("prepare", "folder", tmp_path / "in", tmp_path / "out", "--tile", tile, "-q")
    assert said.code == 0, said.err
    lines = [line for line in said.out.splitlines() if "adadino train" in line]
    commands = [line.partition(": ")[2] for line in lines]
    assert len(commands) == 2
    for command in commands:
        program, verb, *options = shlex.split(command)
        assert (program, verb) == ("adadino", "train")
        at = options.index("--data")
        assert options[at + 1] == str(tmp_path / "out")
        run = load_run(None, parse_overrides(options[:at]))
        run = replace(run, data=replace(run.data, root=(options[at + 1],)))
        assert len(open_splits(run)["val"]) == (256 // tile) ** 2
        assert run.model.backbone.weights in ("tiny", "FILE")


def test_without_a_validation_split_the_next_step_is_to_get_one(adadino, tmp_path):
    write_dataset(tmp_path / "source", {"train": 2, "test": 1}, size=32)
    said = adadino("prepare", "folder", tmp_path / "source", tmp_path / "made", "--tile", 16)
    assert said.code == 0
    assert "next:" not in said.out
    last = said.out.splitlines()[-1]
    assert last.startswith("adadino train needs a val split, which this set does not have: ")
    assert "val/A, val/B and val/label" in last


def test_a_wrong_name_is_a_usage_error_that_lists_the_right_ones(adadino, source, tmp_path):
    said = adadino("prepare", "levir", source, tmp_path / "made")
    assert (said.code, said.out) == (2, "")
    assert "levir-cd-plus" in said.err


@pytest.mark.parametrize("place", ["absent", "empty"])
def test_a_source_without_data_is_one_line(adadino, tmp_path, place):
    if place == "empty":
        (tmp_path / place).mkdir()
    said = adadino("prepare", "clcd", tmp_path / place, tmp_path / "made", "-q")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("adadino: ")
    assert said.err.count("\n") == 1
    assert place in said.err
    assert not (tmp_path / "made" / "manifest.json").exists()


def test_other_options_reach_the_work(adadino, source, tmp_path):
    said = adadino("prepare", "whu-cd", source, tmp_path / "made", "--variant", "round", "-q")
    assert said.code == 1
    assert "padded" in said.err


def test_codes_are_explained_by_a_file(adadino, tmp_path):
    write_dataset(tmp_path / "source", {"train": 2, "val": 1}, size=32)
    table = tmp_path / "classes.json"
    table.write_text('{"names": ["field", "house"], "codes": {"255": ["field", "house"]}}')
    given = ("prepare", "from-to", tmp_path / "source", tmp_path / "made", "--tile", 32)
    said = adadino(*given)
    assert (said.code, said.out) == (1, "")
    assert "from-to needs --classes FILE" in said.err
    assert not (tmp_path / "made").exists()
    said = adadino(*given, "--classes", table)
    assert said.code == 0
    assert (
        f"next: adadino train --init tiny --classes --augment.size 32 --data {tmp_path / 'made'}"
        in said.out
    )
