"""Verdicts out to QGIS and in again; what is judged as a mask and as tiles."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
from PIL import Image

from adadino.data.folder import PairFolder
from adadino.errors import InputError, WriteError
from adadino.review import (
    Review,
    read_verdicts,
    start_review,
    verdict_frame,
    write_layer_tiles,
    write_mask,
    write_tiles,
    write_verdicts,
)
from tests.geo.rasters import noise, write
from tests.review.conftest import H, W, change_map, square


def judge(review, shape, verdict="right", by="ana", **more):
    review.act({"do": "judge", "shape": shape, "verdict": verdict, **more}, by=by)


def read_mask(path) -> np.ndarray:
    with rasterio.open(path) as file:
        return file.read(1)


def edited(review, path, change) -> gpd.GeoDataFrame:
    """The layer as QGIS would write it after an edit."""
    frame = verdict_frame(review)
    frame = change(frame)
    frame.to_file(path)
    return frame


def test_polygons_are_the_maps(review, mask):
    assert [p.area for p in review.polygons.values()] == [400, 240, 192, 96, 32]  # 4 m2 a pixel
    assert review.polygons[2].outline.area == 60
    assert review.polygons[4].prob_mean == pytest.approx(0.7)
    assert np.array_equal(read_mask(review.folder / "mask.tif"), change_map())


def test_a_probability_and_a_threshold_are_a_map(tmp_path, probability):
    found = start_review(tmp_path / "r", probability=probability, threshold=0.65)
    assert len(found.polygons) == 3
    assert found.facts.threshold == 0.65


def test_a_map_is_not_started_twice(review, mask):
    with pytest.raises(WriteError, match="already"):
        start_review(review.folder, mask=mask)


@pytest.mark.parametrize("written", [0, 9, None])
def test_a_review_of_another_version_is_named_and_stays(review, written):
    facts = review.folder / "review.json"
    said = json.loads(facts.read_text()) | {"format": written}
    facts.write_text(json.dumps(said))
    with pytest.raises(InputError, match=f"has the format {written}, and this version reads 1"):
        Review.open(review.folder)
    assert json.loads(facts.read_text()) == said


def test_what_is_no_change_map_is_refused(tmp_path, probability):
    other = write(tmp_path / "classes.tif", np.full((1, H, W), 7, np.uint8))
    with pytest.raises(InputError, match="holds the value 7"):
        start_review(tmp_path / "r", mask=other)
    binary = write(tmp_path / "binary.tif", (change_map() == 1)[None] * np.uint8(255))
    with pytest.raises(InputError, match="255 and no 1"):
        start_review(tmp_path / "r", mask=binary)
    assert not (tmp_path / "r" / "review.json").exists()


def test_an_empty_map_can_be_judged(tmp_path):
    empty = write(tmp_path / "empty.tif", np.zeros((1, H, W), np.uint8))
    review = start_review(tmp_path / "r", mask=empty)
    review.act({"do": "draw", "geometry": square(1, 1, 5, 5)}, by="ana")
    write_verdicts(review, tmp_path / "v.gpkg")
    assert list(gpd.read_file(tmp_path / "v.gpkg").verdict) == ["missed"]


def test_the_layer_has_the_columns_and_comes_back_without_an_action(review, tmp_path):
    judge(review, 1, "right", note="a roof")
    judge(review, 2, "wrong")
    review.act({"do": "draw", "geometry": square(40, 10, 50, 20)}, by="ben")
    review.act({"do": "unchanged", "geometry": square(0, 30, 8, 40)}, by="ben")
    write_verdicts(review, tmp_path / "v.gpkg")
    frame = gpd.read_file(tmp_path / "v.gpkg")
    assert {"verdict", "note", "judged_by", "judged_at"} <= set(frame.columns)
    first = frame[frame.id == 1].iloc[0]
    assert (first.verdict, first.note, first.judged_by) == ("right", "a roof", "ana")
    assert frame.crs == "EPSG:32631"
    assert first.geometry.bounds == (500_004, 3_999_976, 500_024, 3_999_996)
    assert sorted(frame.verdict.dropna()) == ["missed", "right", "unchanged", "wrong"]
    assert read_verdicts(review, tmp_path / "v.gpkg").actions == []


def test_edits_of_qgis_come_in(review, tmp_path):
    new = shapely.box(500_080, 3_999_960, 500_100, 3_999_980)  # columns 40 to 50, rows 10 to 20

    def change(frame):
        frame.loc[frame.id == 1, "verdict"] = "Right "
        frame.loc[frame.id == 2, ["verdict", "note"]] = ["wrong", "a shadow"]
        frame.loc[frame.id == 3, "geometry"] = shapely.box(500_060, 3_999_980, 500_070, 3_999_992)
        row = gpd.GeoDataFrame({"verdict": ["missed"]}, geometry=[new], crs=frame.crs)
        return gpd.pd.concat([frame[frame.id != 5], row])

    edited(review, tmp_path / "e.gpkg", change)
    found = read_verdicts(review, tmp_path / "e.gpkg", by="ana")
    state = Review.open(review.folder).state()
    assert {k: v.verdict for k, v in state.verdicts.items()} == {1: "right", 2: "wrong"}
    assert state.notes[2] == "a shadow"
    assert state.reshaped[3].geometry.equals(shapely.box(30, 4, 35, 10))
    (drawn,) = state.missed.values()
    assert drawn.geometry.equals(shapely.box(40, 10, 50, 20))
    assert {action.list for action in found.actions} == {"file"}
    assert read_verdicts(review, tmp_path / "e.gpkg", by="ana").actions == []  # twice is once


def test_a_file_in_another_system_is_brought_back(review, tmp_path):
    def change(frame):
        frame.loc[frame.id == 1, "verdict"] = "wrong"
        return frame.to_crs("EPSG:4326")

    edited(review, tmp_path / "e.geojson", change)
    found = read_verdicts(review, tmp_path / "e.geojson", by="ana")
    assert "WGS 84" in found.notes[0]
    assert [action.do for action in found.actions] == ["judge"]  # no outline has moved


def test_a_split_polygon_of_which_a_piece_is_wrong_is_cut(review, tmp_path):
    left, right = shapely.box(30, 4, 34, 10), shapely.box(34, 4, 38, 10)

    def change(frame):
        rows = frame[frame.id == 3].copy()
        rows = gpd.pd.concat([rows, rows])
        rows["geometry"] = [
            shapely.box(500_060, 3_999_980, 500_068, 3_999_992),
            shapely.box(500_068, 3_999_980, 500_076, 3_999_992),
        ]
        rows["verdict"] = ["right", "wrong"]
        return rows

    edited(review, tmp_path / "e.gpkg", change)
    read_verdicts(review, tmp_path / "e.gpkg", by="ana")
    state = review.state()
    assert state.reshaped[3].geometry.equals(left)
    assert not state.reshaped[3].geometry.intersects(shapely.buffer(right, -0.1))
    assert state.verdicts[3].verdict == "right"


def refusal(review, tmp_path, change, words):
    edited(review, tmp_path / "bad.gpkg", change)
    with pytest.raises(InputError, match=words):
        read_verdicts(review, tmp_path / "bad.gpkg", by="ana")
    assert review.log.read() == []


def test_verdicts_that_contradict_each_other_are_refused(review, tmp_path):
    def change(frame):
        twice = gpd.pd.concat([frame, frame[frame.id == 1]])
        twice["verdict"] = ["right", *[None] * 4, "wrong"]
        return twice

    refusal(review, tmp_path, change, "polygon 1 is in bad.gpkg twice")


def test_verdicts_of_another_map_are_refused(review, tmp_path):
    refusal(review, tmp_path, lambda f: f.assign(review="0" * 16), "of another map")
    other = change_map()[:, ::-1]
    path = write(tmp_path / "other.tif", np.ascontiguousarray(other)[None], nodata=255)
    foreign = start_review(tmp_path / "foreign", mask=path)
    judge(foreign, 1)
    # An older layer, which does not say what map it is of: places tell.
    verdict_frame(foreign).drop(columns="review").to_file(tmp_path / "old.gpkg")
    with pytest.raises(InputError, match="lies elsewhere"):
        read_verdicts(review, tmp_path / "old.gpkg", by="ana")


def test_an_older_layer_of_this_map_comes_in_with_a_remark(review, tmp_path):
    def change(frame):
        frame.loc[frame.id == 4, "verdict"] = "wrong"
        return frame[["id", "verdict", "geometry"]]

    edited(review, tmp_path / "old.gpkg", change)
    found = read_verdicts(review, tmp_path / "old.gpkg", by="ana")
    assert "does not say of which map" in found.notes[0]
    assert review.state().verdicts[4].verdict == "wrong"


def test_words_that_are_no_verdict_and_places_outside_are_refused(review, tmp_path):
    refusal(review, tmp_path, lambda f: f.assign(verdict="yes"), "has the verdict 'yes'")
    away = shapely.box(0, 0, 10, 10)
    refusal(review, tmp_path, lambda f: f.assign(geometry=away, id=None), "outside the scene")
    refusal(review, tmp_path, lambda f: f.assign(verdict="missed"), "polygon 1 of the map is 'mis")
    refusal(review, tmp_path, lambda f: f.assign(id=None, verdict="right"), "cannot be right")


def test_a_file_without_coordinates_does_not_fit_a_map_with(review, tmp_path):
    refusal(review, tmp_path, lambda f: f.set_crs(None, allow_override=True), "no coordinate sys")


def test_plain_labelled_polygons_are_changes(review, tmp_path):
    roofs = [
        shapely.box(500_004, 3_999_974, 500_024, 3_999_996),  # polygon 1, a row larger
        shapely.box(500_080, 3_999_960, 500_100, 3_999_980),
    ]
    gpd.GeoDataFrame({"name": ["a", "b"]}, geometry=roofs, crs="EPSG:32631").to_file(
        tmp_path / "roofs.gpkg"
    )
    found = read_verdicts(review, tmp_path / "roofs.gpkg", by="ana")
    state = review.state()
    assert state.verdicts[1].verdict == "right"
    assert state.reshaped == {}
    assert len(state.missed) == 1
    assert "1 are in the map, 1 were missed" in found.notes[0]


def test_the_corrected_mask_is_the_map_with_what_was_said(review, tmp_path):
    judge(review, 1, "right")
    judge(review, 2, "wrong")
    review.act({"do": "cut", "shape": 3, "geometry": square(30, 4, 34, 10)}, by="ana")
    review.act({"do": "draw", "geometry": square(50, 40, 62, 44)}, by="ana")
    review.act({"do": "unchanged", "geometry": square(0, 0, 20, 48)}, by="ana")
    share = write_mask(review, tmp_path / "corrected.tif")
    expected = change_map()
    expected[20:28, 4:12] = 0  # wrong
    expected[4:10, 30:34] = 0  # cut
    expected[40:42, 10:14] = 0  # in the area, and nobody called it right
    expected[40:44, 50:60] = 1  # missed, up to the nodata
    found = read_mask(tmp_path / "corrected.tif")
    assert np.array_equal(found, expected)
    assert share == (expected == 1).sum() / (expected != 255).sum()


@pytest.fixture
def dates(tmp_path):
    before = write(tmp_path / "before.tif", noise(3, H, W))
    after = write(tmp_path / "after.tif", noise(3, H, W)[:, ::-1].copy())
    return before, after


def test_tiles_are_what_the_loaders_take(review, tmp_path, dates):
    for shape in (1, 2, 3, 5):
        judge(review, shape, "right" if shape != 2 else "wrong")
    made = write_tiles(review, tmp_path / "tiles", *dates, tile=32)
    assert made.names == ("change_r0_c0", "change_r16_c0")
    assert made.left_out == 1  # polygon 4 reaches into it, and is not judged
    folder = PairFolder(tmp_path / "tiles")
    before, _, label, _ = folder[0]
    assert np.array_equal(before.numpy(), noise(3, H, W)[:, :32, :32])
    expected = change_map()[:32, :32] == 1
    expected[20:28, 4:12] = False
    assert np.array_equal(label.numpy(), expected)


def test_tiles_that_are_judged_in_part_are_left_out_or_say_so(review, tmp_path, dates):
    judge(review, 1)
    made = write_tiles(review, tmp_path / "whole", *dates, tile=48)
    assert made.names == ()
    assert made.left_out == 1
    assert "not judged" in made.warnings[0]
    write_tiles(review, tmp_path / "parts", *dates, tile=48, partial=True)
    known = np.array(Image.open(tmp_path / "parts" / "known" / "change_r0_c0.png")) == 255
    right, *others = outlines(review, (1, 2, 3, 4, 5))
    expected = (away(right) > 8) | (away(right.boundary) > 2) & (away(right) == 0)
    for other in others:
        expected &= away(other) > 8
    assert np.array_equal(known, expected)


def test_what_a_person_outlined_is_known_to_its_edge(review, tmp_path, dates):
    for shape in review.polygons:
        judge(review, shape, "wrong")
    judge(review, 1)
    review.act({"do": "reshape", "shape": 1, "geometry": square(2, 2, 14, 12)}, by="ana")
    judge(review, 3)
    review.act({"do": "draw", "geometry": square(28, 0, 30, 20)}, by="ana")  # beside polygon 3
    write_tiles(review, tmp_path / "parts", *dates, tile=48, partial=True)
    known, label = (
        np.array(Image.open(tmp_path / "parts" / role / "change_r0_c0.png")) == 255
        for role in ("known", "label")
    )
    assert known[:18, :18].all()
    assert label[2:12, 2:14].all()
    assert known[0:20, 28:30].all()
    assert label[0:20, 28:30].all()
    assert not known[4:10, 24:28].any()  # beside 3, and not drawn
    assert known[20:28, 4:12].all()  # wrong
    assert not label[20:28, 4:12].any()


@pytest.mark.parametrize("verdict", ["right", "missed"])
def test_a_layer_says_what_a_person_outlined(review, tmp_path, dates, verdict):
    judge(review, 1)
    path = tmp_path / "judged.gpkg"
    edited(review, path, lambda frame: frame[frame["id"] == 1].assign(verdict=verdict))
    write_layer_tiles(path, tmp_path / "tiles", *dates, tile=48)
    known = np.array(Image.open(tmp_path / "tiles" / "known" / "judged_r0_c0.png")) == 255
    assert known.all() == (verdict == "missed")
    assert known[4:10, 4:10].all()


def outlines(review, shapes):
    return [review.polygons[shape].outline for shape in shapes]


def away(outline):
    """Distances of the centres of 48 x 48 pixels."""
    rows, cols = np.mgrid[:48, :48] + 0.5
    return shapely.distance(shapely.points(cols, rows), outline)


def test_tiles_of_one_class_say_so(review, tmp_path, dates):
    for shape in review.polygons:
        judge(review, shape, "wrong")
    made = write_tiles(review, tmp_path / "tiles", *dates, tile=48)
    assert "cannot learn the other class" in made.warnings[0]


def test_what_contradicts_is_not_known(review, tmp_path, dates):
    for shape in review.polygons:
        judge(review, shape)
    review.act({"do": "unchanged", "geometry": square(0, 0, 6, 48)}, by="ana")
    write_tiles(review, tmp_path / "tiles", *dates, tile=48, partial=True)
    known = np.array(Image.open(tmp_path / "tiles" / "known" / "change_r0_c0.png")) == 255
    both = change_map()[:, :48] == 1
    both[:, 6:] = False
    assert not known[both].any()
    assert known[:, :6][~both[:, :6]].all()


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a\\b", "", "a\x1b"])
def test_a_review_cannot_name_files_elsewhere(review, name):
    facts = review.folder / "review.json"
    said = json.loads(facts.read_text())
    facts.write_text(json.dumps(said | {"name": name}))
    with pytest.raises(InputError, match="a name has no folders"):
        Review.open(review.folder)


def test_dates_of_another_place_are_refused(review, tmp_path):
    judge(review, 1)
    small = [write(tmp_path / f"{n}.tif", noise(3, 20, 20) // n) for n in (1, 2)]
    with pytest.raises(InputError, match="another grid"):
        write_tiles(review, tmp_path / "tiles", *small)
    with pytest.raises(InputError, match="nothing is judged"):
        write_tiles(
            start_review(tmp_path / "new", mask=tmp_path / "change.tif"), tmp_path / "t", *small
        )


def test_a_map_without_coordinates_is_judged_in_pixels(tmp_path):
    path = write(tmp_path / "m.tif", change_map()[None], transform=None, nodata=255)
    review = start_review(tmp_path / "r", mask=path)
    assert review.facts.unit == "px"
    judge(review, 1, "wrong")
    with pytest.warns(UserWarning, match="no coordinate system"):
        write_verdicts(review, tmp_path / "v.gpkg")
    frame = gpd.read_file(tmp_path / "v.gpkg")
    assert frame.crs is None
    assert list(frame.area_px) == [100, 60, 48, 24, 8]


def test_outlines_travel_between_pixels_and_the_map(review):
    pixels = square(3, 4, 10, 20)
    there = review.to_map(pixels)
    assert there["coordinates"][0][0] == (500_006, 3_999_992)
    back = review.to_pixels(there)
    assert np.allclose(back["coordinates"][0], pixels["coordinates"][0])
