"""GDAL reads the objects that obstore writes: the same servers, the same credentials.

The two libraries know the same services by other variables of the environment. Whoever has set
those of obstore (docs/how-to/regions.md lists them) has set enough.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from adadino.area.store import SCHEMES, is_remote

RETRY = {
    "GDAL_HTTP_MAX_RETRY": "10",
    "GDAL_HTTP_RETRY_DELAY": "0.5",
    "GDAL_HTTP_RETRY_CODES": "ALL",
    "GDAL_HTTP_CONNECTTIMEOUT": "20",
}


def gdal_name(name: str) -> str:
    """What GDAL calls an object; other names stay as they are."""
    scheme, _, rest = name.partition("://")
    return SCHEMES[scheme] + rest if is_remote(name) else name


def teach_gdal(*names: Path | str) -> None:
    """Let GDAL, in all threads, read where obstore does, and repeat requests that fail.

    The settings go into the environment of the process, because rasterio's own are a thread's.
    They are left alone where none of the names can lead to an object store. What the user has set
    for GDAL itself stays.

    Args:
        names: What GDAL will open; a mosaic (.vrt) may name objects.
    """
    if not any(is_remote(name) or str(name).endswith(".vrt") for name in names):
        return
    for name, value in (RETRY | _amazon() | _google() | _azure()).items():
        os.environ.setdefault(name, value)


def _amazon() -> dict[str, str]:
    said = {"AWS_NO_SIGN_REQUEST": "YES"} if _is_set("AWS_SKIP_SIGNATURE") else {}
    endpoint = _first("AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    if endpoint:
        at = urlsplit(endpoint)
        said |= {"AWS_S3_ENDPOINT": at.netloc, "AWS_VIRTUAL_HOSTING": "FALSE"}
        said["AWS_HTTPS"] = "YES" if at.scheme == "https" else "NO"
    return said


def _google() -> dict[str, str]:
    # A bearer token is not handed on: GDAL would send it to every server that it reads from.
    said = {"GS_NO_SIGN_REQUEST": "YES"} if _is_set("GOOGLE_SKIP_SIGNATURE") else {}
    account = _first("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
    endpoint = _first("GOOGLE_BASE_URL")
    if account:
        said["GOOGLE_APPLICATION_CREDENTIALS"] = account
    if endpoint:
        said["CPL_GS_ENDPOINT"] = f"{endpoint.rstrip('/')}/"
    return said


def _azure() -> dict[str, str]:
    said = {"AZURE_NO_SIGN_REQUEST": "YES"} if _is_set("AZURE_SKIP_SIGNATURE") else {}
    endpoint = _first("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    account = _first("AZURE_STORAGE_ACCOUNT_NAME")
    key = _first(*(f"AZURE_STORAGE_{what}_KEY" for what in ("ACCOUNT", "ACCESS", "MASTER")))
    signature = _first("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
    parts = {
        "AZURE_STORAGE_ACCOUNT": ("AccountName", account),
        "AZURE_STORAGE_ACCESS_KEY": ("AccountKey", key),
        "AZURE_STORAGE_SAS_TOKEN": ("SharedAccessSignature", signature),
    }
    if endpoint:  # which GDAL takes in this form alone
        found = [("BlobEndpoint", endpoint), *parts.values()]
        text = ";".join(f"{name}={value}" for name, value in found if value)
        return said | {"AZURE_STORAGE_CONNECTION_STRING": text}
    return said | {name: value for name, (_, value) in parts.items() if value}


def _first(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
