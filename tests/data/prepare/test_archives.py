"""Sources: folders, zips and zips in zips give the same members; hostile archives are refused."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

import pytest

from adadino.data.prepare import archives
from adadino.data.prepare.archives import Source
from adadino.errors import DataError

FILES = {"A/1.png": b"one", "B/1.png": b"two", "label/1.PNG": b"three", "list/train.txt": b"1.png"}
NOISE = {"__MACOSX/A/._1.png": b"x", ".cache/1.png": b"x", "A/Thumbs.db": b"x", "README.md": b"x"}


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def unpack(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def contents(path: Path, scratch: Path) -> dict[str, bytes]:
    with Source(path, scratch) as source:
        found = {}
        for member in source.members:
            with member.open() as file:
                found[str(member.path)] = file.read()
        return found


def test_folder_zip_and_nested_zips_hold_the_same_members(tmp_path: Path) -> None:
    everything = FILES | NOISE
    folder = unpack(tmp_path / "folder", {f"train/{n}": c for n, c in everything.items()})
    expected = {f"train/{name}": content for name, content in FILES.items()}
    assert contents(folder, tmp_path) == expected

    plain = tmp_path / "plain.zip"
    plain.write_bytes(zipped({f"train/{n}": c for n, c in everything.items()}))
    assert contents(plain, tmp_path) == expected

    folder_of_zips = unpack(tmp_path / "zips", {"train.zip": zipped(everything)})
    assert contents(folder_of_zips, tmp_path) == expected

    nested = tmp_path / "nested.zip"
    nested.write_bytes(zipped({"train.zip": zipped(everything)}))
    assert contents(nested, tmp_path / "scratch") == expected
    assert list((tmp_path / "scratch").iterdir()) == []

    digests = []
    for path in (plain, folder_of_zips, nested, folder):
        with Source(path, tmp_path) as source:
            digests.append(source.digest())
    assert len(set(digests[:3])) == 1
    # A folder has times, not checksums.
    assert digests[3] != digests[0]


def test_the_digest_follows_the_content_where_sizes_stay(tmp_path: Path) -> None:
    def digest(path: Path) -> str:
        with Source(path, tmp_path) as source:
            return source.digest()

    folder = unpack(tmp_path / "folder", FILES)
    (tmp_path / "x.zip").write_bytes(zipped(FILES))
    before = digest(folder), digest(tmp_path / "x.zip")
    assert before == (digest(folder), digest(tmp_path / "x.zip"))
    (folder / "A" / "1.png").write_bytes(b"eno")
    os.utime(folder / "A" / "1.png", (10**9, 10**9))
    (tmp_path / "x.zip").write_bytes(zipped(FILES | {"A/1.png": b"eno"}))
    assert digest(folder) != before[0]
    assert digest(tmp_path / "x.zip") != before[1]


def test_links_in_folders_are_followed_once(tmp_path: Path) -> None:
    elsewhere = unpack(tmp_path / "elsewhere", {"1.png": b"one"})
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "A").symlink_to(elsewhere)
    (folder / "loop").symlink_to(folder)
    assert contents(folder, tmp_path) == {"A/1.png": b"one"}


def test_backslashes_of_zips_made_on_windows_are_folders(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"train\\A\\1.png": b"one"}))
    assert contents(tmp_path / "x.zip", tmp_path) == {"train/A/1.png": b"one"}


@pytest.mark.parametrize(
    "name", ["../evil.png", "A/../../evil.png", "/etc/evil.png", "..\\evil.png", "C:/evil.png"]
)
def test_paths_that_leave_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"A/1.png": b"one", name: b"evil"}))
    with pytest.raises(DataError, match=r"x\.zip is refused: .*evil.*leaves the archive"):
        Source(tmp_path / "x.zip", tmp_path)


def test_hostile_member_of_a_nested_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"train.zip": zipped({"../evil.png": b"evil"})}))
    with pytest.raises(DataError, match=r"x\.zip:train\.zip is refused"):
        Source(tmp_path / "x.zip", tmp_path)


def test_symbolic_links_in_archives_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("A/1.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match=r"A/1\.png' is a symbolic link"):
        Source(tmp_path / "x.zip", tmp_path)


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    content = bytearray(zipped({"A/1.png": b"one"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag in the central directory
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(DataError, match="encrypted"):
        Source(tmp_path / "x.zip", tmp_path)


def test_zip_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"A/1.png": bytes(10**6)}))
    assert len(contents(tmp_path / "x.zip", tmp_path)) == 1  # black, but small: no bomb

    monkeypatch.setattr(archives, "RATIO_FREE_SIZE", 10**5)
    with pytest.raises(DataError, match=r"1,000,000 bytes packed into .*a zip bomb"):
        Source(tmp_path / "x.zip", tmp_path)

    monkeypatch.setattr(archives, "RATIO_LIMIT", 10**6)
    monkeypatch.setattr(archives, "SIZE_LIMIT", 10**5)
    with pytest.raises(DataError, match=r"more than .* GiB"):
        Source(tmp_path / "x.zip", tmp_path)


def test_zips_too_deep_broken_or_missing_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "deep.zip").write_bytes(zipped({"b.zip": zipped({"c.zip": zipped({})})}))
    with pytest.raises(DataError, match=r"b\.zip:c\.zip is a zip in a zip in a zip"):
        Source(tmp_path / "deep.zip", tmp_path)
    (tmp_path / "broken.zip").write_bytes(b"Rar!")
    with pytest.raises(DataError, match=r"broken\.zip is not a readable zip.*unpacked first"):
        Source(tmp_path / "broken.zip", tmp_path)
    with pytest.raises(DataError, match="nowhere does not exist"):
        Source(tmp_path / "nowhere", tmp_path)
