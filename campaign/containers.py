"""Images that carry a payload where their format has room for words nobody looks at.

The pixels stay dark, below `DARK`: whatever is brighter in an answer is not from the image.
"""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

DARK = 90
"""Values of pixels are smaller."""
Container = Callable[[bytes, int, int, random.Random], bytes]


def _pixels(width: int, height: int, rng: random.Random) -> np.ndarray:
    """A gradient: nothing that a lossy format would overshoot at."""
    row = np.linspace(10, DARK - 30, width)[None, :, None]
    column = np.linspace(0, 20, height)[:, None, None]
    return (row + column + np.arange(3) * rng.random() * 3).astype(np.uint8)


def _saved(kind: str, width: int, height: int, rng: random.Random) -> bytes:
    file = io.BytesIO()
    options = {"quality": rng.choice((75, 95)), "progressive": rng.random() < 0.3}
    pixels = Image.fromarray(_pixels(width, height, rng))
    pixels.save(file, kind, **(options if kind == "JPEG" else {}))
    return file.getvalue()


def _segment(marker: int, before: bytes = b"", *, late: bool = False) -> Container:
    """A JPEG with a segment; a payload that is too long for one goes into several."""

    def made(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
        room = 65_000 - len(before)
        if len(payload) < 257 and rng.random() < 0.8:
            payload += b" " * 257  # the zero byte of a short length would end the text before it
        parts = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
        filled = b"\xff" * rng.choice((0, 0, 1, 3))  # fill bytes may stand before a marker
        segments = b"".join(
            filled + b"\xff%c" % marker + struct.pack(">H", 2 + len(before + part)) + before + part
            for part in parts
        )
        whole = _saved("JPEG", width, height, rng)
        at = whole.index(b"\xff\xdb") if late or rng.random() < 0.3 else 2
        return whole[:at] + segments + whole[at:]

    return made


def _exif(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
    """EXIF is a TIFF in a segment: description, artist and the user's comment."""
    order = rng.choice("<>")
    inner = _Tiff(order, big=False)
    for tag in (270, 315, 33432):
        inner.text(tag, payload)
    return _segment(0xE1, b"Exif\0\0")(inner.file(), width, height, rng)


def _chunk(
    name: bytes, wrap: Callable[[bytes], bytes], *, after: bool = False, key: bytes = b"Comment\0"
) -> Container:
    """A PNG with a chunk before or after its pixels."""

    def made(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
        whole = _saved("PNG", width, height, rng)
        data = key + wrap(payload)
        chunk = struct.pack(">I", len(data)) + name + data
        chunk += struct.pack(">I", zlib.crc32(name + data))
        at = whole.index(b"IEND") - 4 if after else 33
        return whole[:at] + chunk + whole[at:]

    return made


def _behind(kind: str) -> Container:
    """Bytes after the end of an image, once or more."""

    def made(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
        whole = _tiff(width, height, rng).file() if kind == "TIFF" else ""
        whole = whole or _saved(kind, width, height, rng)
        return whole + b"\0" * rng.choice((0, 1, 512)) + payload * rng.choice((1, 2))

    return made


class _Tiff:
    """Writes a TIFF of any byte order, with directories that hold whatever is asked for."""

    def __init__(self, order: str, *, big: bool) -> None:
        self.order, self.big = order, big
        self.entries: dict[int, tuple[int, int, bytes]] = {}
        self.following: list[dict[int, tuple[int, int, bytes]]] = []
        self.front, self.pixels = b"", b""

    def numbers(self, tag: int, kind: str, *values: float) -> None:
        code = {"H": 3, "I": 4, "d": 12}[kind]
        data = struct.pack(f"{self.order}{len(values)}{kind}", *values)
        self.entries[tag] = code, len(values), data

    def text(self, tag: int, data: bytes, code: int = 2) -> None:
        data = data + b"\0" if code == 2 else data
        self.entries[tag] = code, len(data), data

    def file(self) -> bytes:
        """Header, room for words at the front, pixels, then the directories."""
        head = 16 if self.big else 8
        body = self.front + b"\0" * (-len(self.front) % 8)
        start = head + len(body)
        body += self.pixels + b"\0" * (-len(self.pixels) % 8)
        mark = b"II" if self.order == "<" else b"MM"
        first = head + len(body)
        for number, entries in enumerate([self.entries, *self.following]):
            entries = dict(entries)
            if self.pixels:
                entries[273] = 4, 1, struct.pack(f"{self.order}I", start)
            last = number == len(self.following)
            body += self._directory(entries, head + len(body), last=last)
        if self.big:
            return mark + struct.pack(f"{self.order}HHHQ", 43, 8, 0, first) + body
        return mark + struct.pack(f"{self.order}HI", 42, first) + body

    def _directory(
        self, entries: dict[int, tuple[int, int, bytes]], at: int, *, last: bool
    ) -> bytes:
        place, order = ("Q" if self.big else "I"), self.order
        room = 8 if self.big else 4
        size = (8 + 20 * len(entries) + 8) if self.big else (2 + 12 * len(entries) + 4)
        table, behind = b"", b""
        for tag, (code, count, data) in sorted(entries.items()):
            table += struct.pack(f"{order}HH{place}", tag, code, count)
            if len(data) <= room:
                table += data + b"\0" * (room - len(data))
            else:
                table += struct.pack(f"{order}{place}", at + size + len(behind))
                behind += data + b"\0" * (-len(data) % 8)
        following = 0 if last else at + size + len(behind)
        count = struct.pack(f"{order}{'Q' if self.big else 'H'}", len(entries))
        return count + table + struct.pack(f"{order}{place}", following) + behind


def _tiff(width: int, height: int, rng: random.Random, *, placed: bool | None = None) -> _Tiff:
    """Three bands of bytes in one strip, on the ground or not."""
    tiff = _Tiff(rng.choice("<>"), big=rng.random() < 0.3)
    tiff.pixels = _pixels(width, height, rng).tobytes()
    tiff.numbers(256, "I", width)
    tiff.numbers(257, "I", height)
    tiff.numbers(258, "H", 8, 8, 8)
    for tag, value in ((259, 1), (262, 2), (277, 3), (284, 1)):
        tiff.numbers(tag, "H", value)
    tiff.numbers(278, "I", height)
    tiff.numbers(279, "I", len(tiff.pixels))
    if placed if placed is not None else rng.random() < 0.5:
        tiff.numbers(33550, "d", 0.5, 0.5, 0.0)
        tiff.numbers(33922, "d", 0, 0, 0, 500_000.0, 5_000_000.0, 0)
        tiff.numbers(34735, "H", 1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633)
    return tiff


def _tag(tag: int, code: int = 2, *, wrap: Callable[[bytes], bytes] = bytes) -> Container:
    """A TIFF with a tag of words."""

    def made(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
        tiff = _tiff(width, height, rng)
        tiff.text(tag, wrap(payload), code)
        return tiff.file()

    return made


def _citation(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
    """A coordinate system that is told in words: GeoTIFF's ASCII parameters."""
    tiff, length = _tiff(width, height, rng, placed=True), len(payload) + 1
    kind, user = rng.choice(((2, 32767), (1, 32767), (2, 4326), (1, 32633)))
    keys = [(1024, 0, 1, kind), (1025, 0, 1, 1), (1026, 34737, length, 0)]
    keys += [(2048, 0, 1, user), (2049, 34737, length, 0)] if kind == 2 else []
    keys += [(3072, 0, 1, user), (3073, 34737, length, 0)] if kind == 1 else []
    flat = [min(number, 65535) for key in keys for number in key]
    tiff.numbers(34735, "H", 1, 1, 0, len(keys), *flat)
    tiff.text(34737, payload + b"|")
    return tiff.file()


def _front(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
    """Words right behind the header, where drivers look for their own."""
    tiff = _tiff(width, height, rng)
    tiff.front = b"\0" * rng.choice((0, 0, 7)) + payload
    return tiff.file()


def _second(kind: int) -> Container:
    """A TIFF whose overview (1), page (2) or mask (4) carries the words."""

    def made(payload: bytes, width: int, height: int, rng: random.Random) -> bytes:
        tiff = _tiff(width, height, rng)
        half = max(1, width // 2), max(1, height // 2)
        other = _Tiff(tiff.order, big=tiff.big)
        other.entries = {k: v for k, v in tiff.entries.items() if k not in (34735, 33550, 33922)}
        across, down = (width, height) if kind == 4 else half
        for tag, value in ((254, kind), (256, across), (257, down), (278, down)):
            other.numbers(tag, "I", value)
        other.numbers(279, "I", across * down * (1 if kind == 4 else 3))
        if kind == 4:
            other.numbers(277, "H", 1)
            other.numbers(258, "H", 8)
            other.numbers(262, "H", 4)
        for tag in (270, 42112):
            other.text(tag, payload)
        tiff.following = [other.entries]
        return tiff.file()

    return made


def _ipct(payload: bytes) -> bytes:
    return b"Photoshop 3.0\x008BIM\x04\x04\0\0" + struct.pack(">I", len(payload)) + payload


def _itxt(payload: bytes) -> bytes:
    return b"\0\0\0\0" + payload


XMP = b"XML:com.adobe.xmp\0"
CONTAINERS: Mapping[str, Container] = {
    "jpeg-comment": _segment(0xFE), "jpeg-comment-late": _segment(0xFE, late=True),
    "jpeg-app0": _segment(0xE0), "jpeg-app1": _segment(0xE1), "jpeg-exif": _exif,
    "jpeg-xmp": _segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0"),
    "jpeg-app2": _segment(0xE2, b"ICC_PROFILE\0\1\1"), "jpeg-flir": _segment(0xE1, b"FLIR\0\1\0\0"),
    "jpeg-app13": _segment(0xED, b"Photoshop 3.0\0"), "jpeg-behind": _behind("JPEG"),
    "png-text": _chunk(b"tEXt", bytes), "png-text-late": _chunk(b"tEXt", bytes, after=True),
    "png-ztxt": _chunk(b"zTXt", lambda text: b"\0" + zlib.compress(text)),
    "png-itxt": _chunk(b"iTXt", _itxt), "png-itxt-late": _chunk(b"iTXt", _itxt, after=True),
    "png-xmp": _chunk(b"iTXt", _itxt, key=XMP), "png-exif": _chunk(b"eXIf", bytes, key=b"MM\0*"),
    "png-private": _chunk(b"vpAg", bytes, key=b""), "png-behind": _behind("PNG"),
    "tiff-description": _tag(270), "tiff-software": _tag(305), "tiff-metadata": _tag(42112),
    "tiff-nodata": _tag(42113), "tiff-xmp": _tag(700, 1), "tiff-iptc": _tag(34377, 7, wrap=_ipct),
    "tiff-exif": _tag(34665), "tiff-rpc": _tag(50844), "tiff-citation": _citation,
    "tiff-front": _front, "tiff-overview": _second(1), "tiff-page": _second(2),
    "tiff-mask": _second(4), "tiff-behind": _behind("TIFF"),
}  # fmt: skip
