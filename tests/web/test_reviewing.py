"""A review through the API: it begins in a worker, every action is kept, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import shutil

import geopandas as gpd
import httpx2
import numpy as np
import pytest
import rasterio
from fastapi.testclient import TestClient

from adadino.web.app import create_app
from adadino.web.http import features
from adadino.web.jobs import reviews
from adadino.web.jobs.demo import demo_job, unpack_demo
from adadino.web.jobs.records import RESULT
from adadino.web.settings import Settings

ANA, BEN = "correct horse battery", "another secret word"


def application(folder):
    """The application without its queue, with tokens of two people."""
    tokens = (f"ana={ANA}", f"ben={BEN}")
    return create_app(Settings(jobs=folder, demo=False, tokens=tokens))


def client(app, secret=ANA):
    return TestClient(
        app, base_url="http://127.0.0.1:8000", headers={"authorization": f"Bearer {secret}"}
    )


def squares(folder):
    """Put a map of 81 squares, from unlikely to sure, in place of the demo's two polygons."""
    with rasterio.open(folder / "probability.tif") as dataset:
        profile = {"crs": dataset.crs, "transform": dataset.transform}
    values = np.zeros((512, 512), np.float32)
    for number in range(81):
        row, column = 50 * (number // 9) + 40, 50 * (number % 9) + 40
        values[row : row + 12, column : column + 12] = 0.41 + number / 150
    with rasterio.open(
        folder / "probability.tif", "w", driver="GTiff", width=512, height=512, count=1,
        dtype="float32", nodata=np.nan, **profile,
    ) as dataset:  # fmt: skip
        dataset.write(values, 1)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """An application with the demo, whose review has begun."""
    folder = tmp_path_factory.mktemp("jobs")
    app = application(folder)
    store = app.state.service.store
    identity, draft = store.draft()
    job = demo_job(identity, "tiny", "", *unpack_demo(draft))
    squares(draft)
    store.add(job, draft)
    at = f"/api/jobs/{identity}/review"
    opened = client(app)
    assert opened.get(at).status_code == 404
    begun = opened.post(at, params={"threshold": 0.4})
    assert begun.status_code == 200, begun.text
    yield app, at, begun.json(), folder / identity
    app.state.service.stop()


@pytest.fixture
def act(judged):
    app, at, _, _ = judged

    def act(do, secret=ANA, status=200, **more):
        answer = client(app, secret).post(f"{at}/actions", json={"do": do, **more})
        assert answer.status_code == status, answer.text
        return answer.json()

    return act


def square(review, column, row, side):
    """A square of the scene in coordinates of its map, 0.5 m a pixel."""
    left, _, _, top = review["extent"]
    step = review["step"]
    x, y = left + column * step, top - row * step
    ring = [(x, y), (x + side * step, y), (x + side * step, y - side * step), (x, y - side * step)]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


@pytest.fixture
def place(judged):
    app, at, _, _ = judged
    view = client(app).get(at.removesuffix("/review")).json()["view"]
    return {"extent": view["extent"], "step": view["transform"][0]}


def test_it_proposes_a_random_sample_first_and_has_the_polygons_of_the_page(judged):
    app, at, begun, _ = judged
    shown = client(app).get(at.replace("review", "polygons"), params={"threshold": 0.4}).json()
    lists = [proposal["list"] for proposal in begun["proposals"]]
    assert lists == sorted(lists)  # random before uncertain
    assert begun["summary"]["polygons"] == shown["count"] == len(begun["polygons"])
    assert (begun["threshold"], begun["you"]) == (0.4, "ana")
    areas = {f["id"]: f["properties"]["area_m2"] for f in begun["polygons"]}
    assert areas == {f["id"]: f["properties"]["area_m2"] for f in shown["features"]}
    outlines = [gpd.GeoDataFrame.from_features(f).geometry for f in (begun["polygons"], shown)]
    assert outlines[0].union_all().equals(outlines[1].union_all())


def test_a_second_beginning_goes_on_with_the_first(judged):
    app, at, _, _ = judged
    again = client(app, BEN).post(at, params={"threshold": 0.9}).json()
    assert (again["threshold"], again["you"]) == (0.4, "ben")


def test_every_action_is_on_disk_with_who_and_when_before_the_answer(judged, act, place):
    _, at, begun, folder = judged
    first, second = (proposal["id"] for proposal in begun["proposals"][:2])
    said = act("judge", shape=first, verdict="right", list="random", key="k1")
    assert said["verdicts"][str(first)] | {"at": ""} == {
        "verdict": "right", "by": "ana", "at": "", "list": "random", "others": [],
    }  # fmt: skip
    assert act("judge", shape=first, verdict="right", key="k1")["undo"] == said["undo"]  # once
    act("judge", shape=second, verdict="wrong", list="random")
    drawn = act("draw", geometry=square(place, 10, 20, 8))
    (missed,) = drawn["missed"].values()
    assert missed["geometry"]["coordinates"][0][0] == pytest.approx(
        square(place, 10, 20, 8)["coordinates"][0][0], abs=8 * place["step"]
    )
    assert drawn["summary"]["precision"]["judged"] == 2
    lines = [json.loads(line) for line in (folder / "review" / "log.jsonl").open()]
    assert [line["do"] for line in lines] == ["judge", "judge", "draw"]
    assert {line["by"] for line in lines} == {"ana"}
    assert all(line["at"].endswith("Z") for line in lines)
    again = client(application(folder.parent))  # another server finds all of it
    assert again.get(at).json()["verdicts"] == drawn["verdicts"]


def test_undo_and_redo_are_each_reviewers_own(judged, act):
    shape = judged[2]["proposals"][2]["id"]
    act("judge", shape=shape, verdict="right")
    act("judge", secret=BEN, shape=shape, verdict="wrong")
    said = act("undo", secret=BEN)
    assert said["verdicts"][str(shape)]["by"] == "ana"
    assert "nothing to undo" in act("undo", secret=BEN, status=422)["error"]
    disputed = act("redo", secret=BEN)["verdicts"][str(shape)]
    assert disputed["others"] == [["ana", "right"], ["ben", "wrong"]]
    act("undo", secret=BEN)


def test_files_of_the_verdicts(judged, act, place, tmp_path):
    app, at, begun, _ = judged
    wrong = begun["proposals"][1]["id"]
    act("judge", shape=wrong, verdict="wrong")
    act("unchanged", geometry=square(place, 220, 220, 5))
    opened = client(app)
    (tmp_path / "v.gpkg").write_bytes(opened.get(f"{at}/verdicts.gpkg").content)
    frame = gpd.read_file(tmp_path / "v.gpkg").set_index("id")
    assert frame.loc[wrong, ["verdict", "judged_by"]].tolist() == ["wrong", "ana"]
    assert set(frame["verdict"].dropna()) == {"right", "wrong", "missed", "unchanged"}
    answer = opened.get(f"{at}/corrected.tif")
    assert "corrected.tif" in answer.headers["content-disposition"]
    mask = opened.get(at.replace("review", "mask.tif"), params={"threshold": 0.4})
    values = []
    for content in (mask.content, answer.content):
        with rasterio.MemoryFile(content) as file, file.open() as dataset:
            values.append(dataset.read(1))
    polygon = next(f for f in begun["polygons"] if f["id"] == wrong)
    area = polygon["properties"]["area_m2"] / place["step"] ** 2
    assert (values[0] & ~values[1]).sum() == round(area)
    assert (values[1] & ~values[0])[20:28, 10:18].all()  # what was drawn as missed


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"do": "judge", "shape": 9999, "verdict": "right"}, 422, "no polygon 9999"),
        ({"do": "judge", "shape": 1, "verdict": "fine"}, 422, "verdict"),
        ({"do": "judge", "shape": 1}, 422, "needs verdict"),
        ({"do": "dance"}, 422, "do"),
        ({"do": "draw", "geometry": {"type": "Point", "coordinates": [1, 2]}}, 422, "polygon"),
        ({"do": "draw", "geometry": {"type": "Polygon", "coordinates": "x"}}, 422, "polygon"),
        ({"do": "draw", "geometry": {}}, 422, "polygon"),
        ({"do": "undo", "by": "ben"}, 422, "by"),
        ({"do": "note", "shape": 1, "note": "x" * 3000}, 422, "note"),
        ({"do": "note", "shape": 1, "note": "a\x00b"}, 422, "control characters"),
        ({"do": "note", "shape": 1, "note": "\x1b[31m"}, 422, "control characters"),
    ],
)
def test_actions_that_are_refused(judged, asked, status, says):
    app, at, _, folder = judged
    kept = (folder / "review" / "log.jsonl").read_bytes()
    answer = client(app).post(f"{at}/actions", json=asked)
    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    assert str(folder) not in answer.text
    assert (folder / "review" / "log.jsonl").read_bytes() == kept


def test_a_log_has_an_end(judged, monkeypatch, act):
    monkeypatch.setattr(reviews, "LOG_BYTES", 10)
    assert "keeps no more" in act("undo", status=507)["error"]


def test_only_plain_files_of_a_worker_become_a_review(tmp_path, judged):
    app, _, _, folder = judged
    made = tmp_path / "made"
    made.mkdir()
    (made / "review.json").write_text("{}")
    (made / "polygons.json").symlink_to(folder / "job.json")
    (made / "mask.tif").write_bytes(b"")
    with pytest.raises(reviews.AdaDINOError, match="begin it again"):
        app.state.service.reviews.adopt(folder.name, made)


@pytest.mark.parametrize("planted", ["folder", "link", "file"])
def test_a_review_that_a_worker_planted_goes_when_its_job_is_done(tmp_path, planted):
    service = application(tmp_path / "jobs").state.service
    identity, draft = service.store.draft()
    display, result = unpack_demo(draft)
    service.store.add(demo_job(identity, "tiny", "", display, result), draft)
    elsewhere, review = tmp_path / "elsewhere", tmp_path / "jobs" / identity / "review"
    elsewhere.mkdir()
    (elsewhere / "review.json").write_text("{}")
    if planted == "folder":
        shutil.copytree(elsewhere, review)
    elif planted == "link":
        review.symlink_to(elsewhere)
    else:
        review.write_text("")
    (review.parent / RESULT).write_text(json.dumps(result))
    assert service.manager._finish(identity)
    assert not review.exists()
    assert (elsewhere / "review.json").exists()


def test_those_who_wait_for_a_review_take_no_threads_from_others(judged):
    app, at, _, folder = judged

    async def ask():
        bearer = {"authorization": f"Bearer {ANA}"}
        transport = httpx2.ASGITransport(app)
        base = "http://127.0.0.1:8000"
        async with httpx2.AsyncClient(transport=transport, base_url=base, headers=bearer) as asking:
            with app.state.service.reviews.opened(folder.name):
                waiting = [asyncio.ensure_future(asking.get(at)) for _ in range(50)]
                await asyncio.sleep(0.2)
                other = await asyncio.wait_for(asking.get("/api/jobs"), 5)
            return other.status_code, {one.status_code for one in await asyncio.gather(*waiting)}

    assert asyncio.run(ask()) == (200, {200})


def test_pages_of_features_are_made_beside_the_event_loop(judged, monkeypatch):
    app, at, _, _ = judged
    make, beside = features._page, []

    def page(*given):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        beside.append(True)
        return make(*given)

    monkeypatch.setattr(features, "_page", page)
    items = f"{at.removesuffix('/review')}/features/0.5/0/collections/change/items"
    assert client(app).get(items, params={"bbox": "-180,-90,180,90"}).status_code == 200
    assert beside == [True]


@pytest.mark.parametrize("text", ["[", "[]", "[" * 100_000, '[{"id": 1}]', '{"a": 1}'])
def test_a_review_that_a_worker_made_of_nonsense_is_said(tmp_path, text):
    app = application(tmp_path)
    store = app.state.service.store
    identity, draft = store.draft()
    store.add(demo_job(identity, "tiny", "", *unpack_demo(draft)), draft)
    folder = tmp_path / identity / "review"
    folder.mkdir()
    (folder / "review.json").write_text(text)
    (folder / "polygons.json").write_text(text)
    answer = client(app).get(f"/api/jobs/{identity}/review")
    assert (answer.status_code, "damaged" in answer.json()["error"]) == (500, True)
    assert str(tmp_path) not in answer.text


def test_outlines_of_polygons_are_whole_pixels(judged, place):
    for feature in judged[2]["polygons"]:
        corners = np.array(feature["geometry"]["coordinates"][0])
        moved = (corners - [place["extent"][0], place["extent"][3]]) / place["step"]
        np.testing.assert_allclose(moved, np.rint(moved), atol=1e-6)
