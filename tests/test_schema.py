"""Settings from JSON, YAML and the command line: one path, and a typo is an error."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from hashlib import sha256
from typing import Any, get_type_hints

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adadino.config import PRESETS, BSCSConfig, Config
from adadino.errors import ConfigError
from adadino.experiments.runs import digest_of
from adadino.schema import (
    added,
    build,
    identity,
    identity_repr,
    override,
    read_yaml,
    to_dict,
    write_yaml,
)
from adadino.training.config import RunConfig, load_run
from adadino.training.folder import abandoned


def built(*dotted: str) -> Config:
    return build(Config, override({}, dotted))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json_and_yaml(name):
    config = PRESETS[name]
    assert build(Config, to_dict(config)) == config
    assert build(Config, json.loads(json.dumps(to_dict(config)))) == config
    assert build(Config, yaml.safe_load(write_yaml(config))) == config


def test_yaml_keeps_the_order_of_the_fields():
    assert list(yaml.safe_load(write_yaml(Config()))) == [f.name for f in fields(Config)]


def test_what_is_absent_keeps_its_default():
    config = build(Config, {"bscs": {"k": 4}})
    assert config.bscs.k == 4
    assert config.bscs.chunks == 16
    assert config.cgla == Config().cgla


def test_an_instance_stands_for_itself():
    assert build(Config, {"bscs": BSCSConfig(k=3)}).bscs.k == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"bcsc": {}}, r"unknown setting bcsc; did you mean bscs\?"),
        ({"bscs": {"chunk": 8}}, r"unknown setting bscs\.chunk; did you mean chunks\?"),
        ({"bscs": {"zzz": 8}}, r"unknown setting bscs\.zzz; there are: selection, chunks, k"),
        ({"bscs": {"selection": "lerned"}}, r"bscs\.selection is 'lerned'.*did you mean learned\?"),
        ({"bscs": {"k": "six"}}, r"bscs\.k is 'six', must be int"),
        ({"bscs": {"k": 6.0}}, r"bscs\.k is 6\.0, must be int"),
        ({"bscs": {"k": True}}, r"bscs\.k is True, must be int"),
        ({"bscs": {"k": None}}, r"bscs\.k is None, must be int"),
        ({"bscs": {"temperature": True}}, r"bscs\.temperature is True, must be float"),
        ({"bscs": {"temperature": "warm"}}, r"bscs\.temperature is 'warm', must be float"),
        ({"cgla": {"eta": float("nan")}}, r"cgla\.eta is nan"),
        ({"cgla": {"eta": "inf"}}, r"cgla\.eta is 'inf'"),
        ({"cgla": {"eta": 10**400}}, r"cgla\.eta is 1000"),
        ({"cpgr": {"refiner": 1}}, r"cpgr\.refiner is 1, must be bool"),
        ({"cpgr": {"refiner": "yes"}}, r"cpgr\.refiner is 'yes', must be bool"),
        ({"cpgr": {"prior": ["spatal"]}}, r"cpgr\.prior\[0\] is 'spatal'.*did you mean spatial"),
        ({"backbone": {"mean": [1, 2]}}, r"backbone\.mean needs 3 values, got 2"),
        ({"backbone": {"name": True}}, r"backbone\.name is True, must be str"),
        ({"cgla": {"depths": [1, "x"]}}, r"cgla\.depths\[1\] is 'x', must be int"),
        ({"cgla": {"depths": [1, True]}}, r"cgla\.depths\[1\] is True"),
        ({"bscs": 6}, r"bscs must be a mapping, not 6"),
        ({"bscs": {"k": 17}}, r"bscs\.k is 17, must be between"),
    ],
)
def test_a_wrong_setting_is_named(data, message):
    with pytest.raises(ConfigError, match=message):
        build(Config, data)


def test_the_path_starts_where_one_says():
    with pytest.raises(ConfigError, match=r"^unknown setting model\.bscs\.kk"):
        build(Config, {"bscs": {"kk": 1}}, "model")


def test_a_setting_without_a_default_must_be_given():
    @dataclass(frozen=True)
    class Needs:
        data: str

    with pytest.raises(ConfigError, match=r"Needs: .*data"):
        build(Needs, {})


# --- dotted overrides ---


def test_overrides_are_laid_over_and_leave_the_rest():
    data = {"bscs": {"k": 6, "chunks": 32}, "scale": 1}
    result = override(data, ["bscs.k=8", "cgla.mode=blind"])
    assert result == {"bscs": {"k": 8, "chunks": 32}, "scale": 1, "cgla": {"mode": "blind"}}
    assert data["bscs"]["k"] == 6


@pytest.mark.parametrize("text", ["1,4,7,11", "[1, 4, 7, 11]", "1, 4, 7, 11"])
def test_lists_as_one_types_them(text):
    assert built(f"cgla.depths={text}").cgla.depths == (1, 4, 7, 11)


def test_priors_of_the_paper():
    assert built("cpgr.prior=none").cpgr.prior == ()
    assert built("cpgr.prior=[]").cpgr.prior == ()
    assert built("cpgr.prior=delta").cpgr.prior == ("delta",)
    assert built("cpgr.prior=spatial,delta").cpgr.prior == ("spatial", "delta")


def test_off_is_a_word_although_yaml_reads_false():
    assert yaml.safe_load("off") is False
    config = built("cgla.mode=off", "bscs.selection=off")
    assert (config.cgla.mode, config.bscs.selection) == ("off", "off")
    with pytest.raises(ConfigError, match=r"cgla\.delta is False"):
        built("cgla.delta=off")


def test_1e_4_is_a_number_although_yaml_reads_a_string():
    assert yaml.safe_load("1e-4") == "1e-4"
    assert built("cgla.eta=1e-4").cgla.eta == 1e-4
    assert type(built("cgla.eta=1").cgla.eta) is float
    assert built("backbone.mean=1e-1,0.2,.3").backbone.mean == (0.1, 0.2, 0.3)


def test_true_false_and_null():
    config = built("cpgr.refiner=false", "backbone.trainable=true", "backbone.weights=null")
    assert not config.cpgr.refiner
    assert config.backbone.trainable
    assert config.backbone.weights is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/data/x=y.pth", "/data/x=y.pth"),
        ("'/data/a,b.pth'", "/data/a,b.pth"),
        ("2020-13-45", "2020-13-45"),
        ("5", "5"),
        ("[a", "[a"),
    ],
)
def test_text_stays_text(text, value):
    assert built(f"backbone.weights={text}").backbone.weights == value


@pytest.mark.parametrize("item", ["bscs.k", "=6", "", "bscs k 6"])
def test_an_override_without_a_name_or_value_is_refused(item):
    with pytest.raises(ConfigError, match=r"must look like model\.bscs\.k=6"):
        override({}, [item])


def test_an_override_below_a_value_is_refused():
    with pytest.raises(ConfigError, match=r"bscs\.k\.x: k is a value, not a group"):
        override({"bscs": {"k": 6}}, ["bscs.k.x=1"])


# --- YAML files ---


def test_a_yaml_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("bscs: {k: 4, selection: random}\ncgla:\n  eta: 1e-4\n")
    config = build(Config, read_yaml(path))
    assert (config.bscs.k, config.bscs.selection, config.cgla.eta) == (4, "random", 1e-4)
    path.write_text("# nothing but a comment\n")
    assert read_yaml(path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system ['touch owned']", "python/object/apply"),
        ("!!python/object:adadino.config.Config {}", "python/object"),
        ("a: [1, 2", "is not valid YAML"),
        ("a: 2020-13-45", "is not valid YAML: month must be in 1..12"),
        ("a: !!int x", "is not valid YAML"),
        ("[" * 5000, "is not valid YAML"),
        ("- 1\n- 2\n", "must hold a mapping of settings, not a list"),
        ("6", "must hold a mapping of settings, not a int"),
    ],
    ids=["call", "object", "open", "date", "int", "deep", "list", "number"],
)
def test_yaml_that_is_no_plain_mapping_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["c.yaml"]


def test_yaml_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.yaml: No such file"):
        read_yaml(tmp_path / "nowhere.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ConfigError, match=r"b\.yaml is not valid YAML"):
        read_yaml(tmp_path / "b.yaml")


# --- anything at all ---

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 40),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["off", "none", "pair", "static", "random", "1e400", "nan", "1e-4"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def nearly(cls: type) -> st.SearchStrategy[Any]:
    """Mappings with the right names and anything for values, so that the deep checks are met."""
    hints = get_type_hints(cls)
    values = {
        f.name: nearly(hints[f.name]) | SCALARS if is_dataclass(hints[f.name]) else JSON
        for f in fields(cls)
    }
    return st.fixed_dictionaries({}, optional=values)


@settings(max_examples=300)
@given(nearly(Config) | JSON)
def test_anything_else_is_a_config_error(data):
    try:
        config = build(Config, data)
    except ConfigError:
        return
    assert build(Config, to_dict(config)) == config


@settings(max_examples=200)
@given(st.lists(st.text(max_size=20) | st.from_regex(r"bscs\.(k|ranking)=.{0,12}"), max_size=3))
def test_any_override_is_taken_or_refused_in_words(dotted):
    with contextlib.suppress(ConfigError):
        build(Config, override({}, dotted))


@dataclass(frozen=True)
class Then:
    a: int = 1
    inner: BSCSConfig = BSCSConfig()  # noqa: RUF009, it is frozen


Now = make_dataclass(
    "Then",
    [("a", int, 1), ("new", float, added(0.5)), ("inner", BSCSConfig, BSCSConfig())],
    frozen=True,
)


def test_an_added_field_counts_only_when_it_is_used():
    assert identity_repr(Now()) == repr(Then())
    assert identity(Now()) == to_dict(Then())
    assert to_dict(Now())["new"] == 0.5
    assert identity(Now(new=1.0)) == {**to_dict(Then()), "new": 1.0}
    assert identity_repr(Now(new=1.0)) == repr(Then()).replace("a=1,", "a=1, new=1.0,")


# sha256 of repr(config), and the names of runs, as 0.1.0 made them.
MODELS = {
    "tiny": "d0e10970b5aceb74",
    "vits16": "ed75d9156339537c",
    "vits16plus": "7a6edaecc059acd7",
    "vitb16": "531bc0a26ef936ac",
    "vitl16": "066c0b987ea5db54",
    "vith16plus": "3bb930eed7c94671",
    "vit7b16": "2abbc133167bb7a0",
}
RUNS = {
    ("preset=tiny",): "7f57db0bc3",
    ("preset=vitl16", "model.bscs.k=16", "train.lr=1e-3"): "40d9382bb7",
}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_known_by_the_identity_they_had_in_0_1_0(name):
    assert sha256(identity_repr(PRESETS[name]).encode()).hexdigest()[:16] == MODELS[name]


@pytest.mark.parametrize("overrides", RUNS)
def test_runs_of_a_table_are_found_in_the_folders_0_1_0_gave_them(overrides):
    assert digest_of(load_run(None, overrides)) == RUNS[overrides]


def test_settings_of_0_1_0_without_results_may_be_replaced(tmp_path):
    said = tmp_path / "config.yaml"
    said.write_text(yaml.safe_dump(identity(RunConfig())))
    assert abandoned(tmp_path, RunConfig, ())
    mine = identity(RunConfig())
    del mine["data"]["tile"]  # not every setting of then is named: somebody wrote this by hand
    said.write_text(yaml.safe_dump(mine))
    assert not abandoned(tmp_path, RunConfig, ())
