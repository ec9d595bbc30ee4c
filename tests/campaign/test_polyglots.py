"""The target finds the hole that was there, and none at the server's door."""

from __future__ import annotations

import random

import pytest
import rasterio

from campaign.containers import CONTAINERS
from campaign.fuzz import feed
from campaign.payloads import PAYLOADS
from campaign.polyglots import Polyglot

pytestmark = pytest.mark.filterwarnings("ignore")  # GDAL's, about names that are no text


class AtTheDoor(Polyglot):
    served = False


class WithoutADoor(AtTheDoor):
    """As the worker opened uploads before: GDAL asks every driver."""

    def begin(self) -> None:
        super().begin()
        self.open_file = rasterio.open


def test_a_door_for_every_driver_lets_canaries_out(tmp_path):
    target = WithoutADoor(tmp_path / "work")
    following = target.inputs(3)

    def some() -> bytes:
        """Comments of JPEG alone: few inputs must do."""
        while True:
            data = following()
            if data.startswith((b"jpeg-comment vrt-", b"tiff-metadata overview-file")):
                return data

    target.inputs = lambda seed: some
    said = " ".join(feed(target, tmp_path, count=40, seed=3))
    assert "was opened" in said, said
    assert "not the container's size" in said, said


def test_a_byte_of_a_canary_is_seen_among_pixels(tmp_path):
    target = WithoutADoor(tmp_path / "work")
    target.begin()
    for size, says in (((64, 48), "is not the image's"), ((320, 320), "not the container's size")):
        payload = PAYLOADS["vrt-raw"](str(target.watch.lures.raw), *size).encode()
        path = tmp_path / "polyglot.jpg"
        path.write_bytes(CONTAINERS["jpeg-comment"](payload, 64, 48, random.Random(0)))
        with pytest.raises(AssertionError, match=says):
            target._look(path, 64, 48)


def test_nothing_passes_the_door(tmp_path):
    target = AtTheDoor(tmp_path / "work")
    assert feed(target, tmp_path, count=200, seed=4) == {}
    taken = sum(n for (_, how), n in target.counts.items() if how == "taken")
    assert taken > 200  # counted by container and by payload


def test_the_port_is_watched(tmp_path):
    target = AtTheDoor(tmp_path / "work")
    target.begin()
    assert target.watch.touched() is None
    with pytest.raises(rasterio.errors.RasterioIOError):
        rasterio.open(f"/vsicurl/http://127.0.0.1:{target.watch.lures.port}/a.tif")
    assert target.watch.touched() == "the port was called"
    target.watch.lures.raw.read_bytes()
    assert target.watch.touched() == "canary.bin was opened"


def test_every_container_meets_every_payload(tmp_path):
    target = AtTheDoor(tmp_path / "work")
    following, many = target.inputs(1), len(CONTAINERS) * len(PAYLOADS)
    met = {tuple(following().split(b"\n")[0].split()[:2]) for _ in range(many)}
    assert len(met) == many
