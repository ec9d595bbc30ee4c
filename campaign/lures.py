"""Canary files and sockets that tell whether anybody touched them."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import struct
import tarfile
import threading
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from campaign.containers import DARK
from campaign.payloads import Lures

BRIGHT = 180
"""Every byte of a canary is at least this; `BRIGHT - DARK` is room for what a lossy format adds."""
_IN_ACCESS, _IN_OPEN, _IN_NONBLOCK = 0x1, 0x20, 0o4000
assert BRIGHT > DARK


class Watch:
    """A folder of canaries and a port, watched from now on.

    The kernel tells of every opening in the folder, by any process. A thread answers the port, so
    that nobody waits there, and counts.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rng = random.Random(f"{seed} canary")
        canary = bytes(rng.randrange(BRIGHT, 251) for _ in range(200_000))
        raw, image = folder / "canary.bin", folder / "canary.tif"
        raw.write_bytes(canary)
        pixels = np.frombuffer(canary[: 64 * 64 * 3], np.uint8).reshape(64, 64, 3)
        Image.fromarray(pixels).save(image, "TIFF")
        with zipfile.ZipFile(folder / "canary.zip", "w") as packed:
            packed.write(image, "canary.tif")
        with tarfile.open(folder / "canary.tar", "w") as tarred:
            tarred.add(image, "canary.tif")
        self._calls = 0
        port = self._listen()
        self.lures = Lures(raw, image, folder / "canary.zip", folder / "canary.tar", port)
        self.secrets = [text for text in map(_beginning, ("/proc/self/environ", "/etc/passwd"))
                        if len(text) >= 24]  # fmt: skip
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.inotify_init1(_IN_NONBLOCK)
        place = os.fsencode(folder)
        if libc.inotify_add_watch(self._events, place, _IN_ACCESS | _IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "the canaries cannot be watched")

    def touched(self) -> str | None:
        """What was touched since the last time; None if nothing was."""
        calls, self._calls = self._calls, 0
        if calls:
            return "the port was called"
        try:
            found = os.read(self._events, 65536)
        except BlockingIOError:
            return None
        length = struct.unpack_from("iIII", found)[3]
        name = found[16 : 16 + length].rstrip(b"\0").decode() or "the folder of the canaries"
        return f"{name} was opened"

    def leaked(self, pixels: np.ndarray) -> str | None:
        """Whether pixels come from a canary, or from a file that everybody has."""
        if pixels.size and float(np.nanmax(pixels)) >= BRIGHT:
            return f"a pixel of {float(np.nanmax(pixels)):g} is not the image's"
        data = np.ascontiguousarray(pixels).astype(np.uint8).tobytes()
        return "it holds words of the machine" if self.holds_secret(data) else None

    def holds_secret(self, data: bytes) -> bool:
        """Whether bytes hold the beginning of a file of the machine, or 16 bytes of a canary."""
        return any(secret in data for secret in self.secrets)

    def _listen(self) -> int:
        stream = socket.create_server(("127.0.0.1", 0))
        port = int(stream.getsockname()[1])
        packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        packets.bind(("127.0.0.1", port))

        def answer() -> None:
            while True:
                caller, _ = stream.accept()
                self._calls += 1
                with caller, suppress(OSError):
                    caller.settimeout(1)
                    caller.recv(1000)
                    caller.sendall(b"HTTP/1.1 404 no\r\ncontent-length: 0\r\n\r\n")

        def count() -> None:
            while packets.recv(2000) is not None:
                self._calls += 1

        for work in (answer, count):
            threading.Thread(target=work, daemon=True).start()
        return port


def _beginning(name: str) -> bytes:
    with suppress(OSError), Path(name).open("rb") as file:
        return file.read(32)[:32]
    return b""
