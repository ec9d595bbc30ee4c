"""Inputs nobody meant: the bytes of a good file, changed a little, so that deep checks are met."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

NUMBERS = (0, 1, 2, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
WORDS = (
    b"null",
    b"true",
    b"false",
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"-1",
    b"0",
    b"{}",
    b"[]",
    b'""',
    b"!!python/object/apply:os.system [true]",
    b"&a [*a]",
    b"*a",
    b"0x" + b"f" * 5000,
    b"9" * 5000,
    b"2020-13-45",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"../../etc/passwd",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbf\xbd",
    b"\xc3\x28",
    b"a" * 300,
    b"off",
    b"yes",
    b"~",
    b"::",
    b"://",
    b"/vsimem/x",
    b"..",
    b".",
    b"%s",
    b"\r\n",
    b"\xe2\x80\xae",
    b",",
    b'"',
    b"\n",
    b"\t",
    b"1.5",
    b"-0.0",
    b"1_000",
    b"12:30:45",
    b"<<: *a",
)


class Mutator:
    """Changes good inputs; the same seed gives the same inputs.

    Args:
        seeds: Good inputs.
        seed: Of the random numbers.
        head: Change only the first so many bytes, where a format keeps what it says of itself.
    """

    def __init__(self, seeds: Sequence[bytes], seed: str, head: int | None = None) -> None:
        self.seeds, self.rng, self.head = list(seeds), random.Random(seed), head

    def __call__(self) -> bytes:
        """The next input."""
        rng = self.rng
        whole = rng.choice(self.seeds)
        cut = len(whole) if self.head is None else min(self.head, len(whole))
        data, rest = bytearray(whole[:cut]), whole[cut:]
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            rng.choice(CHANGES)(data, rng)
        if rng.random() < 0.05:
            return bytes(data + rest)[: rng.randrange(len(whole) + 1)]
        return bytes(data) + rest


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    if len(data) >= size:
        at = rng.randrange(len(data) - size + 1)
        value = rng.choice(NUMBERS) % 256**size
        data[at : at + size] = value.to_bytes(size, rng.choice(("little", "big")))


def _remove(data: bytearray, rng: random.Random) -> None:
    if data:
        at = rng.randrange(len(data))
        del data[at : at + rng.choice((1, 2, 8, 40))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    if data:
        at = rng.randrange(len(data))
        piece = data[at : at + rng.choice((1, 4, 30))]
        data[at:at] = piece * rng.choice((1, 2, 20))


def _word(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(WORDS)


def _token(data: bytearray, rng: random.Random) -> None:
    """Replace a whole value, as between a colon and the next comma or line end."""
    ends = [i for i, byte in enumerate(data) if byte in b':,\n=[]{}"']
    if len(ends) > 1:
        i = rng.randrange(len(ends) - 1)
        data[ends[i] + 1 : ends[i + 1]] = b" " + rng.choice(WORDS)


def _swap(data: bytearray, rng: random.Random) -> None:
    if len(data) > 8:
        a, b = sorted(rng.randrange(len(data)) for _ in range(2))
        data[a], data[b] = data[b], data[a]


CHANGES = (_flip, _byte, _number, _remove, _repeat, _word, _token, _token, _swap)


class TagMutator:
    """Changes tags of a little-endian TIFF in place, so that the rest of the file stays readable.

    Bytes put in or taken out move everything behind them, and GDAL does not even open what comes of
    that; what a reader stumbles over is a file in order whose tags say something odd.

    Args:
        seeds: Good files, not BigTIFF.
        seed: Of the random numbers.
    """

    SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8)
    """Bytes of a value, by the number of its type."""
    FLOATS = (0.0, -0.0, -1.0, 1e-320, 1e30, -1e308, 1e308, float("nan"), float("inf"), 90.0)
    TAGS = (256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325,
            338, 339, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113)  # fmt: skip

    def __init__(self, seeds: Sequence[bytes], seed: str) -> None:
        self.seeds, self.rng = list(seeds), random.Random(seed)

    def __call__(self) -> bytes:
        """The next file."""
        data = bytearray(self.rng.choice(self.seeds))
        start = int.from_bytes(data[4:8], "little")
        count = int.from_bytes(data[start : start + 2], "little")
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self._change(data, start + 2 + 12 * self.rng.randrange(count))
        return bytes(data)

    def _change(self, data: bytearray, at: int) -> None:
        """Change one of the twelve bytes' four fields, or the values that they point to."""
        rng = self.rng
        kind = int.from_bytes(data[at + 2 : at + 4], "little")
        size = self.SIZES[kind] if kind < len(self.SIZES) else 1
        count = int.from_bytes(data[at + 4 : at + 8], "little")
        place = int.from_bytes(data[at + 8 : at + 12], "little")
        far = size * count > 4 and place + size * count <= len(data)
        chance = rng.random()
        if chance < 0.05:
            data[at : at + 2] = rng.choice(self.TAGS).to_bytes(2, "little")
        elif chance < 0.15:
            data[at + 2 : at + 4] = rng.randrange(20).to_bytes(2, "little")
        elif chance < 0.3:
            data[at + 4 : at + 8] = self._number(count, 4)
        elif not far:
            data[at + 8 : at + 12] = self._number(place, 4)
        else:
            where = place + size * rng.randrange(count)
            if kind in (11, 12):
                value = struct.pack("<f" if size == 4 else "<d", self._float(size))
            else:
                value = self._number(int.from_bytes(data[where : where + size], "little"), size)
            data[where : where + size] = value

    def _number(self, old: int, size: int) -> bytes:
        close = old + self.rng.choice((-1, 1, old, 255))
        value = self.rng.choice((close, self.rng.choice(NUMBERS), self.rng.randrange(70)))
        return (value % 256**size).to_bytes(size, "little")

    def _float(self, size: int) -> float:
        value = self.rng.choice((*self.FLOATS, self.rng.gauss(0, 1000)))
        return value if size == 8 or abs(value) < 1e38 or value != value else float("inf")
