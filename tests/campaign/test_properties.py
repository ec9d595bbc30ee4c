"""Documents that are right but for a value or two: taken and kept as they are, or refused in words.

The fuzzer changes bytes, and most of what it makes is no JSON or YAML at all. Here the form is
always right, so that every example reaches the checks behind the parser.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import json

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from adadino import schema
from adadino.area.pairs import read_pairs
from adadino.data.prepare.manifest import MANIFEST, Manifest
from adadino.errors import AdaDINOError, ConfigError, DataError, InputError
from adadino.training.config import RunConfig, load_run
from campaign import asgi
from campaign.targets import Manifests, Stac
from campaign.web import Requests, Uploads

LONGEST = 1500
SHARED = settings(
    max_examples=80,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

TEXT = st.text(max_size=20) | st.sampled_from(
    ["", "off", "none", "1e400", "nan", "../x", "a\0b", "é", "x" * 3000, "-1", "tiny", "\ud800"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, -(2**63), 10**400, 1e308])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
"""What JSON and YAML can hold."""
LETTERS = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="/.")
PLAIN = st.text(LETTERS, min_size=1, max_size=20).filter(lambda text: text == text.strip())
"""Names of files."""


def places(document, here=()):
    """The way to every value of nested dictionaries and lists."""
    inner = document.items() if isinstance(document, dict) else ()
    if isinstance(document, list):
        inner = enumerate(document)
    for key, value in inner:
        yield (*here, key)
        yield from places(value, (*here, key))


@st.composite
def spoiled(draw, document):
    """A document with one or two of its values replaced, taken out, or put in beside."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from(sorted(places(document), key=repr)))
        parent = document
        for key in way:
            parent = parent[key]
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        if how == "replace":
            parent[last] = draw(VALUES)
        elif how == "remove":
            del parent[last]
        elif isinstance(parent, dict):
            parent[draw(TEXT)] = draw(VALUES)
        if not document:
            break
    return document


def refused(error: AdaDINOError) -> None:
    """A refusal is a sentence that can be read and printed."""
    words = str(error)
    assert words.strip()
    assert len(words) <= LONGEST
    words.encode("utf-8", "backslashreplace")


WHOLE = schema.to_dict(RunConfig())
NAMES = [
    ".".join(map(str, way)) for way in places(WHOLE) if not any(isinstance(k, int) for k in way)
]


@SHARED
@given(document=spoiled(WHOLE))
def test_a_configuration_is_kept_or_refused(document, tmp_path_factory):
    path = tmp_path_factory.mktemp("yaml") / "c.yaml"
    try:
        path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    except (ValueError, UnicodeEncodeError, yaml.YAMLError):  # not every value can be written
        assume(False)
    try:
        config = load_run(path, [])
    except ConfigError as error:
        refused(error)
        return
    path.write_text(schema.write_yaml(config), encoding="utf-8")
    assert load_run(path, []) == config  # what is taken can be written down and taken again


@SHARED
@given(
    given_=st.lists(
        st.tuples(
            st.sampled_from([*NAMES, "nothing", "model.bscs.kk", "."]), TEXT | VALUES.map(str)
        ),
        max_size=4,
    )
)
def test_overrides_are_taken_or_refused(given_):
    try:
        config = load_run(None, [f"{name}={value}" for name, value in given_])
    except ConfigError as error:
        refused(error)
        return
    assert dataclasses.is_dataclass(config)


@SHARED
@given(size=st.integers(1, 16), rate=st.floats(1e-6, 1), epochs=st.integers(1, 99))
def test_an_override_is_the_value_that_was_typed(size, rate, epochs):
    config = load_run(
        None, [f"model.bscs.k={size}", f"train.lr={rate!r}", f"train.epochs={epochs}"]
    )
    assert (config.model.bscs.k, config.train.lr, config.train.epochs) == (size, rate, epochs)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """A folder with a manifest in order, and what that says."""
    target = Manifests(tmp_path_factory.mktemp("set"))
    (said,) = target.seeds()
    return target.folder / "set", json.loads(said)


@SHARED
@given(data=st.data())
def test_a_manifest_is_kept_or_refused(manifest, data):
    folder, said = manifest
    document = data.draw(spoiled(said))
    (folder / MANIFEST).write_text(json.dumps(document))
    try:
        found = Manifest.load(folder)
    except DataError as error:
        refused(error)
        return
    assert all(isinstance(count, int) and count >= 0 for count in found.counts.values())


@SHARED
@given(rows=st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5))
def test_a_table_is_read_as_it_was_written(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "p.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("before", "after", "name"), *(
            (before, after, f"n{number}") for number, (before, after) in enumerate(rows)
        )])  # fmt: skip
    try:
        found = read_pairs(path)
    except InputError as error:
        refused(error)
        assert any(before == after for before, after in rows)  # the one thing that may be wrong
        return
    # Paths are from the table's folder on; names that GDAL knows stay as they are.
    for pair, (before, after) in zip(found, rows, strict=True):
        assert pair.before.endswith(before)
        assert pair.after.endswith(after)


@SHARED
@given(header=st.lists(TEXT | st.sampled_from(["before", "after", "name"]), max_size=4),
       rows=st.lists(st.lists(TEXT, max_size=4), max_size=4))  # fmt: skip
def test_a_table_of_anything_is_taken_or_refused(header, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "p.csv"
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["before", "after", *header], *rows])
    path.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
    try:
        assert read_pairs(path)
    except InputError as error:
        refused(error)


@SHARED
@given(data=st.data())
def test_a_stac_document_is_taken_or_refused(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stac")
    document = json.loads(data.draw(st.sampled_from(Stac(folder).seeds())))
    path = folder / "s.json"
    path.write_text(json.dumps(data.draw(spoiled(document))))
    try:
        found = read_pairs(path)
    except InputError as error:
        refused(error)
        return
    assert all(pair.before and pair.after and pair.name for pair in found)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    target = Requests(tmp_path_factory.mktemp("api"))
    target.seeds()
    return target


JOB = {"before": "a.tif", "after": "b.tif", "model": "tiny", "bands": [1], "scale": [0, 9.5],
       "register": True, "name": "x"}  # fmt: skip


@SHARED
@given(body=spoiled(JOB) | VALUES)
def test_a_body_is_taken_or_refused(api, body):
    head = b"POST /api/jobs\nhost: localhost\ncontent-type: application/json\n\n"
    try:
        api.take(head + json.dumps(body).encode())
    except AdaDINOError as error:
        refused(error)


@SHARED
@given(threshold=TEXT | NUMBERS.map(repr), area=TEXT | NUMBERS.map(repr), place=NUMBERS.map(repr))
def test_a_query_is_taken_or_refused(api, threshold, area, place):
    from urllib.parse import quote

    def safe(text):
        return quote(text.encode("utf-8", "surrogatepass"), safe="")

    for path in (
        f"polygons?threshold={safe(threshold)}&min_area={safe(area)}",
        f"tiles/after/1/{safe(place)}/0.png",
    ):
        try:
            api.take(f"GET /api/jobs/{api.demo}/{path}\nhost: localhost\n\n".encode())
        except AdaDINOError as error:
            refused(error)


@pytest.fixture(scope="module")
def form(tmp_path_factory):
    target = Uploads(tmp_path_factory.mktemp("form"))
    target.seeds()
    return target


@SHARED
@given(
    fields=st.dictionaries(
        st.sampled_from([name for name, _ in Uploads.FIELDS]) | TEXT, TEXT, max_size=4
    ),
    which=st.integers(0, 3),
)
def test_a_form_is_taken_or_refused(form, fields, which):
    given_ = [
        (name.encode("utf-8", "replace").decode(), text.encode("utf-8", "surrogatepass"))
        for name, text in fields.items()
    ]
    try:
        form.take(asgi.form(*form.pairs[which], given_))
    except AdaDINOError as error:
        refused(error)
