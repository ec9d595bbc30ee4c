"""Who is who: tokens by name, signed cookies, addresses behind proxies, and guessing."""

from __future__ import annotations

import asyncio
import time

import httpx2
import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from adadino.errors import ConfigError
from adadino.web.app import create_app
from adadino.web.http import identity
from adadino.web.jobs.records import Job
from adadino.web.settings import Settings, Token

ANNA, BEN = "anna=correct horse battery", "ben=staple and then some"


def app_of(tmp_path, **options):
    return create_app(Settings(jobs=tmp_path / "jobs", demo=False, **options))


def client(app, address="10.0.0.1", **headers):
    return TestClient(
        app, base_url="http://127.0.0.1:8000", follow_redirects=False, headers=headers,
        client=(address, 5000),
    )  # fmt: skip


def owner(opened):
    """Who the server takes a client for."""
    return opened.get("/who").json()


@pytest.fixture
def asked(tmp_path):
    """An application that tells who asks."""

    def make(**options):
        app = app_of(tmp_path, **options)

        @app.get("/who")
        def who(request: Request):
            found = request.state.identity
            return {"owner": found.owner, "payer": found.payer, "name": found.name}

        return app

    return make


def test_a_token_has_a_name_and_its_bearer_has_it_everywhere(asked):
    app = asked(tokens=(ANNA, BEN))
    bearer = {"authorization": "Bearer correct horse battery"}
    here, there = (owner(client(app, address, **bearer)) for address in ("10.0.0.1", "10.0.0.2"))
    assert here == there
    assert here["name"] == "anna"
    other = owner(client(app, authorization="Bearer staple and then some"))
    assert other["owner"] != here["owner"]
    assert other["payer"] != here["payer"]


def test_info_says_who_one_is(asked):
    app = asked(tokens=(ANNA,))
    found = client(app, authorization="Bearer correct horse battery").get("/api/info").json()
    assert (found["who"], found["tokens"]) == ("anna", True)


@pytest.mark.parametrize("text", ["plain secret of mine", "abc=short", "with space=and more text"])
def test_a_secret_alone_has_no_name(text):
    assert Token.parse(text) == Token("", text)


def test_tokens_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="the same name"):
        Settings(jobs=tmp_path, tokens=(ANNA, "anna=another long secret"))
    with pytest.raises(ConfigError, match="--trusted-proxy"):
        Settings(jobs=tmp_path, trusted_proxies=("nonsense",))


def test_a_cookie_of_ones_own_making_counts_for_nothing(asked):
    opened = client(asked())
    mine = owner(opened)
    opened.cookies.set("adadino_client", "made-up")
    assert owner(opened) == mine
    opened.cookies.set("adadino_client", "made-up.0123456789abcdef")
    assert owner(opened) == mine


def test_a_cookie_of_ours_is_known_again_and_pays_for_nothing(asked):
    opened = client(asked())
    without = owner(opened)
    opened.get("/")
    assert opened.cookies["adadino_client"]
    one = owner(opened)
    assert owner(opened) == one
    assert one["owner"] != without["owner"]
    assert one["payer"] == without["payer"]  # another cookie is no way around a limit


def test_the_key_outlives_the_server_and_is_nobodys(tmp_path, asked):
    opened = client(asked())
    opened.get("/")
    before = owner(opened)
    again = client(asked())
    again.cookies.set("adadino_client", opened.cookies["adadino_client"])
    assert owner(again) == before
    assert (tmp_path / "jobs" / ".key").stat().st_mode & 0o077 == 0


def test_behind_a_proxy_that_nobody_trusts_clients_are_not_one(asked):
    """Without a cookie, everybody had the proxy's address: one removed another's job."""
    app = asked()
    one, two = (client(app, **{"x-forwarded-for": address}) for address in ("1.1.1.1", "2.2.2.2"))
    assert owner(one)["owner"] != owner(two)["owner"]
    assert owner(one)["owner"] != owner(one)["owner"]  # nobody, until there is a cookie
    assert owner(one)["payer"] == owner(two)["payer"]  # what they write is not believed


def test_a_trusted_proxy_says_who_comes_and_a_client_cannot(asked):
    app = asked(trusted_proxies=("10.0.0.0/24",))
    at = lambda value: owner(client(app, **{"x-forwarded-for": value}))  # noqa: E731
    assert at("1.1.1.1") == at("1.1.1.1")
    assert at("1.1.1.1") != at("2.2.2.2")
    assert at("9.9.9.9, 1.1.1.1") == at("1.1.1.1")  # the first was written by the client
    assert at("1.1.1.1, 10.0.0.7") == at("1.1.1.1")  # two proxies of ours
    assert at("[2001:db8::1]:443") == at("2001:db8::1")
    assert at("2001:db8::1") == at("2001:db8::ffff")  # one client has all of a network
    assert at("2001:db8::1") != at("2001:db9::1")
    assert at("nonsense")["owner"] != at("nonsense")["owner"]


def test_cookies_are_secure_when_the_request_came_by_tls(tmp_path):
    app = app_of(tmp_path, trusted_proxies=("10.0.0.0/24",))
    proto = {"x-forwarded-proto": "https", "x-forwarded-for": "1.1.1.1"}
    assert "; Secure" in client(app, **proto).get("/").headers["set-cookie"]
    assert "; Secure" not in client(app).get("/").headers["set-cookie"]
    strange = client(app, "99.0.0.1", **proto).get("/")
    assert "; Secure" not in strange.headers["set-cookie"]


def test_logging_out_takes_the_cookies_back(tmp_path):
    opened = client(app_of(tmp_path, tokens=(ANNA,)))
    opened.post("/login", data={"token": "correct horse battery"})
    assert opened.get("/api/info").json()["who"] == "anna"
    answer = opened.post("/logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert opened.get("/api/info").status_code == 401


def test_a_session_does_not_follow_from_the_token(tmp_path):
    """Whoever guesses a token must not be able to try it as a cookie."""
    one, two = (client(app_of(tmp_path / name, tokens=(ANNA,))) for name in "ab")
    for opened in (one, two):
        opened.post("/login", data={"token": "correct horse battery"})
    assert one.cookies["adadino_session"] != two.cookies["adadino_session"]
    stranger = client(app_of(tmp_path / "b", tokens=(ANNA,)))
    stranger.cookies.set("adadino_session", one.cookies["adadino_session"])
    assert stranger.get("/api/info").status_code == 401


def test_a_session_ends_with_its_token(tmp_path):
    opened = client(app_of(tmp_path, tokens=(ANNA,)))
    opened.post("/login", data={"token": "correct horse battery"})
    changed = client(app_of(tmp_path, tokens=("anna=another long secret",)))
    changed.cookies.set("adadino_session", opened.cookies["adadino_session"])
    assert changed.get("/api/info").status_code == 401


def many(app, address, secrets):
    """Requests at once from one address."""

    async def ask():
        transport = httpx2.ASGITransport(app=app, client=(address, 5000))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000"
        ) as opened:
            asked = (
                opened.get("/api/info", headers={"authorization": f"Bearer {secret}"})
                for secret in secrets
            )
            return await asyncio.gather(*asked)

    return asyncio.run(ask())


def test_guesses_at_once_are_looked_at_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "GUESS_S", 0.1)
    monkeypatch.setattr("adadino.web.http.guard.LONGEST_WAIT_S", 0.45)
    app = app_of(tmp_path, tokens=(ANNA,))
    begun = time.monotonic()
    answers = many(app, "10.0.0.1", [f"wrong guess {n}" for n in range(30)])
    spent = time.monotonic() - begun
    looked_at = sum(answer.status_code == 401 for answer in answers)
    assert looked_at <= 2 + spent / 0.1
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 30 - looked_at > 15
    assert int(refused[0].headers["retry-after"]) >= 1
    # Somebody else is not made to wait, and the right token is not told from a wrong one either.
    right = "correct horse battery"
    assert many(app, "10.0.0.2", [right])[0].status_code == 200


def test_a_wrong_cookie_is_counted(tmp_path):
    app = app_of(tmp_path, tokens=(ANNA,))
    opened = client(app)
    opened.cookies.set("adadino_session", "1~anna.abc")
    begun = time.monotonic()
    opened.get("/api/info")
    opened.get("/api/info", headers={"authorization": "Bearer wrong wrong wrong"})
    assert time.monotonic() - begun > 0.4


def test_a_job_of_version_0_1_knows_its_turn():
    from adadino.web.jobs.manager import _turn

    job = Job(
        id="x", name="j", client="c", model="m", before="b", after="a", before_name="b",
        after_name="a", source="upload",
    )  # fmt: skip
    assert _turn(job) == "c"
    assert _turn(job.having(payer="p")) == "p"
