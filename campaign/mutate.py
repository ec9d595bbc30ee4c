"""Inputs nobody meant: the bytes of a good file, changed a little, so that deep checks are met."""

from __future__ import annotations

import random
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
