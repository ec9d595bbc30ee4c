"""Servers that speak as Azure (Azurite) and as Google Cloud (SeaweedFS behind its dialect)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import signal
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import obstore
from obstore.store import AzureStore

from tests.area.buckets import BUCKET, Proxy, find_program, free_port

ACCOUNT = "devstoreaccount1"
# Azurite's own, printed in its documentation: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


class Azurite:
    """Microsoft's emulator of its blobs over a folder: killed, it is found again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = find_program("azurite-blob") or "azurite-blob"
        command = [
            program, "--silent", "--disableTelemetry", "--blobHost", "127.0.0.1",
            "--blobPort", str(self.port), "--location", str(self.folder),
        ]  # fmt: skip
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self._make_container()
                return
            except urllib.error.HTTPError as error:
                if error.code == 409:  # it is there
                    return
                raise
            except OSError:  # not yet
                time.sleep(0.3)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def store(self, prefix: str = "") -> AzureStore:
        return AzureStore(
            BUCKET, prefix=prefix or None, account_name=ACCOUNT, account_key=KEY,
            endpoint=f"http://{self.address}/{ACCOUNT}", client_options={"allow_http": True},
        )  # fmt: skip

    def tree(self, prefix: str) -> dict[str, bytes]:
        """Every object under a prefix."""
        store = self.store(prefix)
        names = [found["path"] for page in obstore.list(store) for found in page]
        return {name: bytes(obstore.get(store, name).bytes()) for name in names}

    def environment(self, address: str) -> dict[str, str]:
        """What a user of it sets."""
        return {
            "AZURE_STORAGE_ENDPOINT": f"http://{address}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }

    def reader(self) -> str:
        """A signature that lets whoever has it read and list, and no more."""
        end = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        fields = ["rl", "", end, f"/blob/{ACCOUNT}/{BUCKET}", "", "", "", VERSION, "c", *[""] * 7]
        signed = quote(_signature("\n".join(fields)), safe="")
        return f"sv={VERSION}&se={quote(end)}&sr=c&sp=rl&sig={signed}"

    def _make_container(self) -> None:
        date = format_datetime(datetime.now(UTC), usegmt=True)
        place = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n{place}"
        request = urllib.request.Request(
            f"http://{self.address}/{ACCOUNT}/{BUCKET}?restype=container", method="PUT",
            headers={"x-ms-date": date, "x-ms-version": VERSION,
                     "Authorization": f"SharedKey {ACCOUNT}:{_signature(text)}"},
        )  # fmt: skip
        urllib.request.urlopen(request, timeout=5).close()


def _signature(text: str) -> str:
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class Google(Proxy):
    """Google's dialect of S3's XML: tokens in place of signatures, generations as conditions.

    No emulator that PyPI, npm or Debian has speaks the XML that obstore speaks. The two services
    differ in these headers alone, and a real server stores, lists and locks behind them.
    """

    tokens: ClassVar[dict[str, bool]] = {"owner-token": True, "reader-token": False}
    """Those that are known, and whether they may write."""
    answers: ClassVar[dict[int, bytes]] = {
        401: b"<Error><Code>AuthenticationRequired</Code></Error>",
        403: b"<Error><Code>AccessDenied</Code><Message>Access denied.</Message></Error>",
    }

    def refused(self, command: str, headers: dict[str, str]) -> int:
        """The status for a request without the right to it; 0 with it."""
        said = headers.get("authorization", "").removeprefix("Bearer ")
        reads = command in ("GET", "HEAD")
        if not said and reads:  # GDAL, which is told to ask without
            return 0
        if said not in self.tokens:
            return 401
        return 0 if reads or self.tokens[said] else 403

    def translated(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers of a request as S3 has them; the server lets anybody in."""
        kept = {n: v for n, v in headers.items() if n != "authorization" and "x-goog" not in n}
        if headers.get("x-goog-if-generation-match") == "0":
            kept["if-none-match"] = "*"
        return kept
