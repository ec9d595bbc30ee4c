"""The form of a new comparison in a real browser: dropped files, the data folder, options."""

from __future__ import annotations

import base64
import re

import pytest
import rasterio
from affine import Affine
from PIL import Image

from adadino.data.synthetic import World, write_geotiff_pair
from tests.web.browsing import alter, api, choose

WORLD = World(plan="organic", empty=0.0)
DROP = """files => {
  const moved = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
    moved.items.add(new File([bytes], name));
  }
  for (const kind of ['dragover', 'drop']) {
    const options = { dataTransfer: moved, bubbles: true, cancelable: true };
    document.getElementById('map').dispatchEvent(new DragEvent(kind, options));
  }
}"""


def test_two_files_dropped_on_the_page_are_compared_and_their_grids_warned_of(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 21, 256, WORLD)
    with rasterio.open(after, "r+") as dataset:  # three and a half pixels to the east
        dataset.transform = dataset.transform * Affine.translation(3.5, 0)
    # In the wrong order: the names tell which is first.
    files = [("2024.tif", after), ("2019.tif", before)]
    page.evaluate(DROP, [(n, base64.b64encode(p.read_bytes()).decode()) for n, p in files])
    api.expect(page.locator("#drop-before")).to_contain_text("2019.tif (256 × 256 px")
    api.expect(page.locator("#drop-after")).to_contain_text("2024.tif")
    api.expect(page.locator("#estimate")).to_contain_text("on the CPU")
    page.locator("#start").click()
    api.expect(page.locator("#scene-name")).to_have_text("2019 → 2024")
    api.expect(page.locator("#warnings")).to_contain_text("grid")


def test_two_images_of_the_data_folder_with_another_model_and_options(page):
    page.locator("#tab-jobs").click()
    page.get_by_label("On the server").check()
    page.locator("#data-before").select_option("pair/before.tif")
    page.locator("#data-after").select_option("pair/after.tif")
    for date in ("before", "after"):
        preview = page.locator(f"#preview-{date}")
        api.expect(preview).to_contain_text("320 × 320 px, 3 bands, EPSG:32633")
        api.expect(preview.locator("img")).to_be_visible()
        assert preview.locator("img").evaluate("image => image.naturalWidth") > 0
    api.expect(page.locator("#estimate")).to_contain_text("on the CPU")
    page.locator("#model").select_option("other")
    page.get_by_text("Options", exact=True).click()
    page.locator("#option-bands").fill("3, 2, 1")
    page.locator("#option-scale").fill("20,200")
    page.locator("#register").check()
    page.locator("#start").click()
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    page.locator("#tab-layers").click()
    api.expect(page.locator("#facts")).to_contain_text("Bands3, 2, 1Scale20 to 200")
    api.expect(page.locator("#facts")).to_contain_text("Modelother")


def test_options_that_are_wrong_are_said_before_anything_is_sent(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 22, 64)
    choose(page, before, after)
    page.get_by_text("Options", exact=True).click()
    wrong = {"bands": ("3,2", "0,1,2", "a"), "scale": ("9,1", "1", "1,")}
    for field, values in wrong.items():
        for value in values:
            page.locator(f"#option-{field}").fill(value)
            page.locator("#start").click()
            api.expect(page.locator("#problem")).to_contain_text(f"{field.capitalize()} must be")
        page.locator(f"#option-{field}").fill("")


def test_a_problem_goes_when_the_source_or_a_file_changes(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 23, 64)
    page.locator("#tab-jobs").click()
    problem = page.locator("#problem")
    page.locator("#start").click()
    api.expect(problem).to_contain_text("Choose the file before")
    page.get_by_label("On the server").check()
    api.expect(problem).to_be_hidden()
    page.get_by_label("Upload").check()
    page.locator("#start").click()
    api.expect(problem).to_be_visible()
    choose(page, before, after)
    api.expect(problem).to_be_hidden()


def test_a_job_has_the_name_it_was_given(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 24, 64)
    choose(page, before, after)
    assert page.locator("#job-name").get_attribute("placeholder") == "before → after"
    page.get_by_label("Name optional", exact=True).fill("Berlin, 2019 to 2024")
    page.locator("#start").click()
    api.expect(page.locator("#scene-name")).to_have_text("Berlin, 2019 to 2024")
    page.locator("#tab-jobs").click()
    assert page.locator("#job-name").input_value() == ""


def test_a_job_that_takes_too_long_is_said_before_it_is_sent(page, tmp_path):
    def slow(info):
        models = [model | {"mp_per_s": 0.01, "overhead_s": 20.0} for model in info["models"]]
        return info | {"models": models, "limits": info["limits"] | {"job_s": 22.0}}

    alter(page, "**/api/info", slow)
    page.reload()
    sent = []
    page.on("request", lambda request: sent.append(request.method))
    files = write_geotiff_pair(tmp_path, 25, 128)
    choose(page, *files[:2])  # 20 s and 1.6 for its pixels
    api.expect(page.locator("#estimate")).to_have_text("About 22 s on the CPU.")
    files = write_geotiff_pair(tmp_path / "larger", 25, 256)
    choose(page, *files[:2])
    api.expect(page.locator("#estimate")).to_contain_text(
        "About 27 s on the CPU. This server takes"
    )
    page.locator("#start").click()
    api.expect(page.locator("#problem")).to_contain_text("takes jobs of up to 22 s")
    assert "POST" not in sent


def test_a_picture_is_shown_before_it_is_sent(page, tmp_path):
    for name in ("before.png", "after.png"):
        Image.new("RGB", (300, 200), "green").save(tmp_path / name)
    choose(page, tmp_path / "before.png", tmp_path / "after.png")
    api.expect(page.locator("#thumb-after")).to_be_visible()
    assert page.locator("#thumb-after").evaluate("canvas => [canvas.width, canvas.height]") == [
        256,
        171,
    ]
    page.get_by_label("On the server").check()
    api.expect(page.locator("#thumb-after")).to_be_hidden()


def test_a_pair_without_coordinates_is_measured_in_pixels(page, tmp_path):
    for image in write_geotiff_pair(tmp_path, 26, 128, WORLD)[:2]:
        with rasterio.open(image) as dataset:
            Image.fromarray(dataset.read().transpose(1, 2, 0)).save(image.with_suffix(".png"))
    page.locator("#threshold").fill("0.1")  # another job is shown at the same
    choose(page, tmp_path / "before.png", tmp_path / "after.png")
    page.locator("#start").click()
    api.expect(page.locator("#scene-facts")).to_have_text("pixels · 128 × 128 px")
    api.expect(page.locator("#rows tr").first.locator("td").nth(1)).to_have_text(
        re.compile(r"^\d.* px$")
    )
    page.locator("#rows tr").first.click()
    api.expect(page.locator("#popup")).to_contain_text(re.compile(r"Area[\d,]+ px"))
    page.locator("#min-area").fill("1")
    api.expect(page.locator("#contents")).to_contain_text("without polygons below 2 px")


@pytest.mark.slow
def test_any_resolution_is_an_option_of_the_form(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 27, 64)
    choose(page, before, after)
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Any resolution").check()
    with page.expect_response("**/api/jobs") as sent:
        page.locator("#start").click()
    assert sent.value.json()["any_resolution"] is True
