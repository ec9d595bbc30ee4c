"""The Hugging Face hub: repositories fetched into the local cache, folders uploaded.

All access to the hub is here, below everything that loads or saves a model. huggingface_hub is
imported when it is needed; it keeps what it fetched, and with HF_HUB_OFFLINE=1 it asks nobody.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from adadino.errors import AdaDINOError, WeightsError


def is_hub_id(source: object) -> bool:
    """Whether a name that is no file here can be `owner/repository` on the hub."""
    name = str(source)
    is_file_name = name.endswith((".pth", ".safetensors", ".onnx"))
    shaped = re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None
    # A name inside a folder that exists here is a mistyped path, not a repository.
    return shaped and not is_file_name and not os.path.exists(os.path.dirname(name))  # noqa: PTH110, PTH120


def fetch(source: str) -> Path:
    """Bring a repository's weights and settings into the local cache; returns their folder.

    Raises:
        WeightsError: huggingface_hub is not installed, or the repository cannot be had.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        raise WeightsError(
            f"{source} is neither a file nor a folder here; to fetch it as a hub id: "
            "pip install 'adadino[hub]'."
        ) from error
    try:
        return Path(
            huggingface_hub.snapshot_download(source, allow_patterns=["*.json", "*.safetensors"])
        )
    except Exception as error:  # gated, refused, unknown, offline: each its own type
        raise WeightsError(
            f"there is no {source} here, and it cannot be fetched from the hub: {_reason(error)}. "
            "If it is gated, accept its licence and log in, or download it by hand and give the "
            "file."
        ) from error


def upload(folder: Path, repo_id: str, *, private: bool, message: str) -> str:
    """Upload a folder as one commit of a repository; returns the commit's address.

    Raises:
        AdaDINOError: huggingface_hub is not installed, or the hub refuses.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise AdaDINOError(
            "the hub needs huggingface_hub, which is not installed: pip install 'adadino[hub]'"
        ) from error
    try:
        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
    except Exception as error:  # offline, not logged in, refused: each its own type
        raise AdaDINOError(
            f"cannot upload to {repo_id}: {_reason(error)}. Log in with `hf auth login` and see "
            "that you may write there."
        ) from error
    return str(commit)


def _reason(error: Exception) -> str:
    """The first line of an error; huggingface_hub's are long."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
