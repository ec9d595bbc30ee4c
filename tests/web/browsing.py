"""A page of the server in Chromium, watched: what it says on its console, and whom it asks."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
api.expect.set_options(timeout=60_000)  # for a machine with other things to do


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


class Watched:
    """A page and what its console said."""

    def __init__(self, browser, server, **options):
        self.context = browser.new_context(
            **({"viewport": {"width": 1280, "height": 800}} | options)
        )
        self.context.set_default_timeout(60_000)
        self.server = server
        self.open()

    def open(self):
        """A new page for a visitor who was never here; what was loaded before is in the cache."""
        self.context.clear_cookies()
        self.page = self.context.new_page()
        self.said, self.asked = [], set()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.add(request.url))
        self.page.goto(self.server.address)
        self.ready()

    def ready(self):
        api.expect(self.page.locator("#rows tr").first).to_be_visible()
        self.drawn()

    def drawn(self):
        """Wait until the map has all its tiles; a silent network would take longer to tell."""
        self.page.evaluate(
            "() => new Promise(done => { const { map } = document.getElementById('map');"
            " map.once('rendercomplete', done); map.render(); })"
        )

    @property
    def count(self):
        return int(self.page.locator("#count").inner_text().replace(",", ""))

    def pixels(self):
        """The map as it is seen."""
        self.drawn()
        return self.page.locator("#map").screenshot()

    @property
    def resolution(self):
        """Map units in a pixel of the screen."""
        return self.page.evaluate(
            "() => document.getElementById('map').map.getView().getResolution()"
        )

    def forgive(self, status):
        """Forget what the browser says of answers with a status: it says so of each of them."""
        self.said = [text for text in self.said if f"status of {status}" not in text]

    def close(self):
        self.leave()
        self.context.close()

    def leave(self):
        said = list(self.said)  # before what the tests answered is asked of the server
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.evaluate("() => localStorage.clear()")
        self.page.close()
        assert said == [], f"the console is not silent: {said}"
        strangers = {url for url in self.asked if not url.startswith(self.server.address)}
        assert not {url for url in strangers if not url.startswith(("data:", "blob:"))}


def slide(page, selector, value):
    page.locator(selector).fill(str(value))


def choose(page, before, after):
    page.locator("#tab-jobs").click()
    page.locator("#file-before").set_input_files(before)
    page.locator("#file-after").set_input_files(after)
    api.expect(page.locator("#drop-after")).to_contain_text(Path(after).name)


def upload(page, before, after):
    choose(page, before, after)
    page.locator("#start").click()


def save_downloads(page, folder):
    """Click every download; where each was saved, by its name in the page."""
    got = {}
    for name in ("mask.tif", "probability.tif", "result.gpkg", "result.geojson", "overview.png"):
        with page.expect_download() as waiting:
            page.locator(f"a[data-file='{name}']").click()
        got[name] = folder / f"got-{name}"
        waiting.value.save_as(got[name])
    return got


def alter(page, pattern, change):
    """Change the JSON of the server's answers at an address: a state that is hard to reach."""

    def answer(route):
        response = route.fetch()
        route.fulfill(response=response, json=change(response.json()))

    page.route(pattern, answer)


def violations(page):
    """What axe-core finds wrong with a page as it is now, as `rule: element`."""
    if not page.evaluate("() => 'axe' in window"):
        source = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
        page.evaluate(source)
    found = page.evaluate(
        "() => axe.run(document, {rules: {'target-size': {enabled: true}},"
        " resultTypes: ['violations']})"
    )
    assert len(found["passes"]) > 10, "axe-core looked at nothing"
    return [
        f"{rule['id']}: {node['html'][:200]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
