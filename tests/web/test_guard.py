"""Who is let in: hosts, other sites, tokens, and the headers of every answer."""

from __future__ import annotations

import asyncio

import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request

from adadino.errors import ConfigError
from adadino.web.app import create_app
from adadino.web.http.body import chunks
from adadino.web.http.problems import RefusedError
from adadino.web.settings import Limits, Settings, choose_models

TOKEN = "correct horse battery"
OURS = {"host": "127.0.0.1:8000"}


def client(tmp_path, **options):
    """The application without its queue."""
    app = create_app(Settings(jobs=tmp_path / "jobs", demo=False, **options))
    return TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8000", 200), ("localhost:1", 200), ("[::1]:8000", 200), ("evil.example", 421),
     ("127.0.0.1.evil.example", 421), ("", 421), ("[", 421), ("evil.example@127.0.0.1", 421),
     ('127.0.0.1/"x', 421), ("127.0.0.1#x", 421)],
)  # fmt: skip
def test_only_our_own_names_are_answered(tmp_path, host, status):
    assert client(tmp_path).get("/healthz", headers={"host": host}).status_code == status


def test_a_name_can_be_allowed(tmp_path):
    opened = client(tmp_path, allowed_hosts=("maps.example",))
    assert opened.get("/healthz", headers={"host": "maps.example"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"origin": "http://127.0.0.1:8000"}, 415),
        ({"sec-fetch-site": "same-origin"}, 415),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_other_sites_cannot_start_jobs(tmp_path, headers, status):
    answer = client(tmp_path).post("/api/jobs", content=b"x", headers=headers)
    assert answer.status_code == status


def test_other_sites_may_link_to_the_page_but_not_read_from_it(tmp_path):
    opened = client(tmp_path)
    strange = {"sec-fetch-site": "cross-site"}
    assert opened.get("/", headers=strange | {"sec-fetch-mode": "navigate"}).status_code == 200
    assert opened.get("/", headers=strange | {"sec-fetch-mode": "no-cors"}).status_code == 403
    assert opened.get("/api/info", headers=strange).status_code == 403


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/info", "/nowhere", "/api/jobs/x"])
def test_every_answer_keeps_the_page_to_itself(tmp_path, path):
    headers = client(tmp_path).get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_a_basemap_is_the_only_stranger_in_the_policy(tmp_path):
    opened = client(tmp_path, basemap="https://tiles.example/{z}/{x}/{y}.png")
    policy = opened.get("/").headers["content-security-policy"]
    assert "img-src 'self' data: https://tiles.example;" in policy


def test_without_the_token_nothing_is_told(tmp_path):
    opened = client(tmp_path, tokens=(TOKEN,))
    assert opened.get("/healthz").status_code == 200
    assert opened.get("/").headers["location"] == "/login"
    assert "token" in opened.get("/login").text
    for path in ("/api/info", "/api/jobs", "/metrics", "/static/app.js", "/api/openapi.json"):
        assert opened.get(path).status_code == 401
    wrong = {"authorization": "Bearer wrong"}
    assert opened.get("/api/info", headers=wrong).status_code == 401
    assert opened.get("/api/info", headers={"cookie": f"adadino_token={TOKEN}"}).status_code == 401


def test_the_token_opens_by_header_and_by_login(tmp_path):
    opened = client(tmp_path, tokens=(TOKEN,))
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert opened.get("/api/info", headers=bearer).status_code == 200
    assert opened.post("/login", data={"token": "wrong"}).headers["location"] == "/login#wrong"
    assert opened.get("/api/info").status_code == 401
    answer = opened.post("/login", data={"token": TOKEN})
    assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    assert TOKEN not in answer.headers["set-cookie"]
    assert opened.get("/api/info").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_other_addresses_need_a_token(tmp_path, host):
    with pytest.raises(ConfigError, match="--token"):
        Settings(jobs=tmp_path, host=host)
    assert Settings(jobs=tmp_path, host=host, tokens=(TOKEN,)).host == host


@pytest.mark.parametrize(
    "options",
    [{"tokens": ("short",)}, {"tokens": ("with\nline break",)}, {"basemap": "ftp://x/{z}/{x}/{y}"},
     {"basemap": "https://x/tiles"}, {"basemap": "https://x;script-src */{z}/{x}/{y}"}],
)  # fmt: skip
def test_settings_that_are_wrong(tmp_path, options):
    with pytest.raises(ConfigError):
        Settings(jobs=tmp_path, **options)


@pytest.mark.parametrize(
    "path",
    ["/static/../settings.py", "/static/%2e%2e/settings.py", "/static/..%2fsettings.py",
     "/api/jobs/..%2f..%2fetc/mask.tif", "/api/jobs/.lock/mask.tif"],
)  # fmt: skip
def test_no_path_leads_out(tmp_path, path):
    assert client(tmp_path).get(path).status_code == 404


def test_models_are_named_without_their_folders():
    chosen = choose_models(["tiny", "runs/levir/best", "x=/srv/a", "/srv/tiny"])
    assert [choice.name for choice in chosen] == ["tiny", "levir/best", "x", "tiny (2)"]
    runs = choose_models(["runs/levir/final", "runs/clcd/final"])
    assert [choice.name for choice in runs] == ["levir/final", "clcd/final"]
    assert [choice.source for choice in chosen][2:] == ["/srv/a", "/srv/tiny"]


def test_the_folder_one_is_in_has_its_name(tmp_path, monkeypatch):
    (tmp_path / "levir" / "best").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "levir" / "best")
    assert [choice.name for choice in choose_models([".", ".."])] == ["levir/best", "levir"]


def test_a_body_that_stops_is_refused_in_the_end():
    async def silence():
        await asyncio.sleep(60)

    async def read():
        scope = {"type": "http", "method": "POST", "headers": [], "path": "/api/jobs"}
        request = Request(scope, silence)
        async for _ in chunks(request, most=100, limits=Limits(idle_s=0.05)):
            pass

    with pytest.raises(RefusedError, match="nothing came") as caught:
        asyncio.run(read())
    assert caught.value.status == 408
