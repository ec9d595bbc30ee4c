"""What a stranger installs: locked by digest, from public places only; actions by commit."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEVELOPERS = {"dev", "test", "docs", "supply"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.+!]+)", text, re.M)
    return {plain(name): version for name, version in found}


def entries() -> list[str]:
    """The lock's requirements, each with its options."""
    lines = [line for line in LOCK.replace("\\\n", " ").splitlines() if line]
    return [line for line in lines if not line.lstrip().startswith("#")]


def test_every_requirement_is_one_version_with_digests():
    for entry in entries():
        assert re.match(r"[\w.-]+==[\w.+!]+( ; [^-]+?)?\s+--hash=sha256:[0-9a-f]{64}", entry), entry
        assert set(re.findall(r"--(\w[\w-]*)", entry)) == {"hash"}, entry


def test_it_names_no_index_no_path_and_no_host():
    for word in (
        "://",
        "file:",
        "--index",
        "--extra-index",
        "--find-links",
        " @ ",
        "/home",
        "/opt",
    ):
        assert word not in LOCK
        assert word not in re.sub(r"^#.*$", "", CONSTRAINTS, flags=re.M)


def test_it_holds_everything_a_user_can_install():
    locked = pins(LOCK)
    wanted = list(PROJECT["dependencies"])
    for extra, requirements in PROJECT["optional-dependencies"].items():
        wanted += [] if extra in DEVELOPERS else requirements
    names = {plain(re.match(r"[\w.-]+", requirement)[0]) for requirement in wanted}
    assert names - {"adadino"} <= set(locked)


def test_lock_and_constraints_agree():
    locked, tested = pins(LOCK), pins(CONSTRAINTS)
    both = locked.keys() & tested.keys()
    assert len(both) > 50
    assert {name: locked[name] for name in both} == {name: tested[name] for name in both}


def test_everything_we_ask_for_is_pinned():
    tested = pins(CONSTRAINTS)
    for requirements in PROJECT["optional-dependencies"].values():
        for requirement in requirements:
            name = plain(re.match(r"[\w.-]+", requirement)[0])
            assert name == "adadino" or name in tested, name


def test_actions_are_pinned_by_commit_and_read_only():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for path in workflows:
        text = path.read_text(encoding="utf-8")
        uses = re.findall(r"uses:\s*(\S+)(.*)", text)
        assert uses
        for action, comment in uses:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action), action
            assert re.match(r"\s+# v\d", comment), f"{action}: say which tag it was"
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
