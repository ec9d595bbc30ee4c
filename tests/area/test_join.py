"""Polygons joined in pieces are those of one process, whatever the units and the cells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from affine import Affine
from rasterio.crs import CRS

from adadino.area import join, polygons
from adadino.area.ledger import Ledger
from adadino.area.polygons import join_region, read_polygons
from adadino.area.store import Folder
from adadino.area.units import Dates, PlacedDates, Unit
from adadino.geo.grid import Grid
from adadino.geo.polygons import simplify
from adadino.geo.polygons.seams import save_part, trace_part
from adadino.geo.polygons.vector import measured, trace
from adadino.scene import SceneOptions
from tests.area.regions import tree

CELL = 48
SHAPE = (150, 200)


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch):
    monkeypatch.setattr(join, "CELL", CELL)
    monkeypatch.setattr(simplify, "SQUARE", CELL)


def river() -> np.ndarray:
    """A change that winds through every unit, lakes with islands, and speckle."""
    random = np.random.default_rng(5)
    mask = (random.random(SHAPE) < 0.3).astype(np.uint8)
    for turn, row in enumerate(range(4, 146, 12)):
        mask[row] = 1
        mask[row : row + 13, 0 if turn % 2 else -1] = 1
    mask[60:100, 70:120] = 1
    mask[75:85, 80:110] = 0
    mask[0:3, 50:60] = 255
    return mask


UTM = CRS.from_epsg(32633)
TURNED = Affine(0.5, 0.01, 5e5, 0.02, -0.5, 5.8e6)


def scene(crs=UTM, transform=TURNED):
    return PlacedDates(Dates("town", "a", "b"), Grid(crs, transform, SHAPE[1], SHAPE[0]))


def leave_units(out, mask, probability, side, placed):
    """What workers leave: the parts of all units, and their records."""
    ledger, done = Ledger(Folder(out)), {}
    for row, col in itertools.product(range(0, SHAPE[0], side), range(0, SHAPE[1], side)):
        size = min(side, SHAPE[0] - row), min(side, SHAPE[1] - col)
        unit = Unit(placed.dates, row, col, *size)
        path = ledger.store.path(ledger.file(unit, "polygons"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(save_part(trace_part(mask[unit.part], probability[unit.part], row, col)))
        done[unit] = ledger.finish(unit, ["polygons"], changed=0, valid=0)
    return ledger, {placed.dates: done}


def backwards(function, items):
    """Workers that finish in another order."""
    answers = {number: function(items[number]) for number in reversed(range(len(items)))}
    return [answers[number] for number in range(len(items))]


@pytest.mark.parametrize(
    ("crs", "simplify"),
    [
        (None, 0.0),
        (UTM, 1.0),
        (CRS.from_epsg(4326), 0.0),
        pytest.param(None, 1.0, marks=pytest.mark.slow),
        pytest.param(UTM, 0.0, marks=pytest.mark.slow),
        pytest.param(CRS.from_epsg(4326), 1.0, marks=pytest.mark.slow),
    ],
)
def test_any_units_in_any_order_give_the_rows_of_one_process(tmp_path, crs, simplify):
    mask, probability = river(), np.random.default_rng(1).random(SHAPE, np.float32)
    placed = (
        scene(crs, Affine(1e-5, 0, 12, 0, -1e-5, 50)) if crs == CRS.from_epsg(4326) else scene(crs)
    )
    options = SceneOptions(min_area=0.6, simplify=simplify)
    expected = measured(trace(mask, probability), placed.grid, min_area=0.6, simplify=simplify)
    assert expected.iloc[0, 1] > 50 * expected.iloc[-1, 1]  # the area of the river
    files = []
    for side, spread in ((16, map), (16, backwards), (40, map), (256, map)):
        out = tmp_path / f"{side}-{spread.__name__}"
        ledger, done = leave_units(out, mask, probability, side, placed)
        joined = join_region(ledger, [placed], done, side, options, spread)
        ours = read_polygons(ledger, joined.files, several=False)
        assert joined.count == len(expected)
        assert list(ours.columns) == list(expected.columns)
        assert ours.crs == expected.crs
        assert [g.wkb for g in ours.geometry] == [g.wkb for g in expected.geometry]
        for name in expected.columns.drop("geometry"):
            assert ours[name].to_numpy().tobytes() == expected[name].to_numpy().tobytes(), name
        files.append(tree(out / polygons.FOLDER))
    assert len(files[0]) == 4 * 5
    assert all(other == files[0] for other in files[1:])


def test_one_unit_more_joins_only_what_it_touches(tmp_path):
    mask = np.zeros(SHAPE, np.uint8)
    mask[5:9, 10:60] = mask[100:104, 150:160] = mask[100:140, 20] = 1
    probability, placed = mask.astype(np.float32), scene()
    ledger, done = leave_units(tmp_path, mask, probability, 16, placed)
    join_region(ledger, [placed], done, 16, SceneOptions(), map)
    whole = tree(tmp_path)
    lost = next(unit for unit in done[placed.dates] if unit.name == "0000096-0000144")
    record = done[placed.dates].pop(lost)
    without = join_region(ledger, [placed], done, 16, SceneOptions(), map)
    assert without.count == 2
    work = []

    def counted(function, items):
        work.append([item.file.rpartition("/")[2] for item in items])
        return map(function, items)

    done[placed.dates] = dict(
        sorted({**done[placed.dates], lost: record}.items(), key=lambda u: u[0].name)
    )
    join_region(ledger, [placed], done, 16, SceneOptions(), counted)
    assert [[name[:15] for name in names] for names in work] == [
        ["0000096-0000144"], ["town-0000096-00"]
    ]  # fmt: skip
    assert tree(tmp_path) == whole
    join_region(ledger, [placed], done, 16, SceneOptions(), counted)
    assert work[2:] == [[], []]
