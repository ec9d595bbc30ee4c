"""A model that was exported to ONNX, run by onnxruntime. Never imports torch."""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.errors import AdaDINOError, ConfigError, WeightsError

Float = NDArray[np.float32]
FORMAT = 1
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def is_exported(source: object) -> bool:
    """Whether a model's name is that of an ONNX file."""
    return isinstance(source, str | PathLike) and Path(source).suffix.lower() == ".onnx"


class ExportedModel:
    """An ONNX file that `adadino export` wrote.

    Attributes:
        path: The file.
        device: `cpu` or `cuda`.
        metadata: What the file says of itself.
        stride: What the sides of tiles should be multiples of.
        size: The only side it takes, if it does not take any.
        digest: SHA-256 of the file.
    """

    def __init__(self, path: str | PathLike[str], *, device: str = "auto") -> None:
        """Open a file.

        Args:
            path: The file.
            device: `auto` takes CUDA where onnxruntime has it, else the CPU.

        Raises:
            WeightsError: The file is missing, broken, or not one of ours.
            ConfigError: There is no such device here.
        """
        self.path = Path(path)
        self.device = _device(device)
        self._session = open_session(self.path, self.device)
        self.metadata = _metadata(self._session, self.path)
        self.stride: int = self.metadata["stride"]
        self.size: int | None = self.metadata.get("size")
        self.digest = hashlib.sha256(self.path.read_bytes()).hexdigest()

    def predict(self, before: Float, after: Float) -> Float:
        """Probability of change (B, H, W) of pairs (B, 3, H, W), RGB float32 in [0, 1]."""
        return run_pair(self._session, before, after)


def open_session(path: Path, device: str) -> Any:
    """An onnxruntime session.

    Raises:
        AdaDINOError: onnxruntime is not installed.
        WeightsError: The file is missing or broken.
    """
    ort = _onnxruntime()
    if not path.is_file():
        raise WeightsError(f"there is no model file {path}; `adadino export` writes one.")
    options = ort.SessionOptions()
    options.log_severity_level = 3  # its remarks on the graph are for its developers
    try:
        return ort.InferenceSession(str(path), options, providers=[PROVIDERS[device]])
    except Exception as error:  # onnxruntime has a type for each of its reasons
        reason = str(error).strip().splitlines()[0][:200]
        raise WeightsError(f"cannot run {path}: {reason}. Export or copy it again.") from error


def run_pair(session: Any, before: Float, after: Float) -> Float:
    """Run a session on pairs (B, 3, H, W), whether it takes two images or six bands."""
    inputs = [value.name for value in session.get_inputs()]
    if len(inputs) == 2:
        answer: Float = session.run(None, dict(zip(inputs, (before, after), strict=True)))[0]
        return answer
    classes: Float = session.run(None, {inputs[0]: np.concatenate((before, after), axis=1)})[0]
    return classes[:, 1]


def _metadata(session: Any, path: Path) -> dict[str, Any]:
    try:
        found = session.get_modelmeta().custom_metadata_map  # which must be text
        metadata = {name: json.loads(text) for name, text in found.items()}
        known = metadata["adadino_format"]
    except (ValueError, KeyError, RecursionError) as error:
        raise WeightsError(
            f"{path} was not written by adadino export: it does not say what it takes. Export a "
            "checkpoint folder with `adadino export MODEL -o model.onnx`."
        ) from error
    if known != FORMAT:
        raise WeightsError(
            f"{path} has export format {known!r}, this version reads {FORMAT}; update adadino."
        )
    for name in ("stride", "size"):
        value = metadata.get(name)
        if not (_is_side(value) or (name == "size" and value is None)):
            raise WeightsError(
                f"{path} says that its {name} is {value!r}, which is no number of pixels; export "
                "it again."
            )
    return metadata


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**20


def _device(name: str) -> str:
    available = _onnxruntime().get_available_providers()
    if name == "auto":
        return "cuda" if PROVIDERS["cuda"] in available else "cpu"
    kind = name.partition(":")[0]
    if PROVIDERS.get(kind) not in available:
        raise ConfigError(
            f"onnxruntime has no device {name!r} here; use --device auto or cpu, or install "
            "onnxruntime-gpu."
        )
    return kind


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise AdaDINOError(
            "ONNX models need onnxruntime, which is not installed: pip install onnxruntime"
        ) from error
    return onnxruntime
