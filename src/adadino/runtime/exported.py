"""A model that was exported to ONNX, opened and run over tiles by onnxruntime. Never imports torch.

Tiles go one by one. Where the file chooses its chunks for every batch, a tile is a batch, so the
result depends on nothing but the tile. A file with `selection=static` holds its chunks.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.bands import BandsConfig
from adadino.config import ClassesConfig
from adadino.domain import Domain
from adadino.errors import AdaDINOError, AdaDINOWarning, ConfigError, WeightsError
from adadino.runtime.protocol import Images

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


class Arrived(NamedTuple):
    """Probabilities that are here already."""

    values: NDArray[np.float32]

    def wait(self) -> NDArray[np.float32]:
        """The probabilities (B, size, size)."""
        return self.values


class OnnxForward:
    """Runs an exported model over tiles; a `runner.Runner`."""

    chooses = False
    fits = False
    chunks = None
    wanted: BandsConfig | Literal["all"] | None = None
    threads = 1  # onnxruntime has threads of its own
    classes: ClassesConfig | None = None
    """None: an exported model tells change alone."""

    def __init__(self, model: ExportedModel, *, tile: int, engine: str) -> None:
        """Take a model.

        Args:
            model: The open file.
            tile: Side of the tiles that will come.
            engine: What the user asked for; an exported model has no other engine.

        Raises:
            ConfigError: The model takes no such tiles, or has no such engine.
        """
        self.model = model
        self.name = model.path.name
        self.stride, self.kind, self.batch = model.stride, model.device, 1
        self.domain = Domain.of_card(model.metadata, model.path)
        self.warnings: list[str] = []
        if engine not in ("auto", "off"):
            raise ConfigError(
                f"engine is {engine}, but {model.path} is exported and runs as it is; leave it "
                "out, or predict with the checkpoint it came from."
            )
        if model.size is not None and model.size != tile:
            raise ConfigError(
                f"{model.path} takes tiles of {model.size} pixels only, not {tile}: give "
                f"--tile {model.size}, or export it for any size."
            )
        said = model.metadata
        if said.get("selection") == "batch" and said["k"] < said["chunks"]:
            text = (
                f"{model.path} chooses its FFN chunks for every tile, not once for the scene; "
                "export with --selection static to fix them."
            )
            self.warnings.append(text)
            warnings.warn(text, AdaDINOWarning, stacklevel=2)

    def fit(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        """Do nothing: an exported model has learnt."""

    def choose_chunks(self, sample: Sequence[Images]) -> None:
        """Do nothing: the file chooses."""

    def choose_batch(self) -> None:
        """Do nothing: tiles go one by one."""

    def resume(self, *, chunks: list[list[int]] | None, batch: int) -> None:
        """Do nothing: nothing was chosen."""

    def inference(self) -> AbstractContextManager[None]:
        """Do nothing: there are no gradients."""
        return nullcontext()

    def device_kind(self, name: str) -> str:
        """Return the name as it is: onnxruntime decides when it opens the file."""
        return name

    def start(self, tiles: Sequence[Images]) -> list[Arrived]:
        """Run the model on tiles."""
        return [
            Arrived(self.model.predict(_floats(tile.before), _floats(tile.after))) for tile in tiles
        ]

    def digest(self) -> str:
        """Name the model by the file's content."""
        return self.model.digest

    def tags(self) -> dict[str, object]:
        """What rasters say of the model."""
        said = self.model.metadata
        chosen = said.get("selection")
        return {
            "ADADINO_PEER": said.get("peer"),
            "ADADINO_BACKBONE": said.get("backbone"),
            "ADADINO_K": said.get("k"),
            "ADADINO_SELECTION": "tile" if chosen == "batch" else chosen,
        }


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
    # Between two tiles its threads would spin: half again as much processor time as the work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
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


def _floats(image: NDArray[np.generic]) -> NDArray[np.float32]:
    """One image (3, H, W) as a batch of floats in 0..1."""
    floats = image[None].astype(np.float32)
    return floats / np.float32(255) if image.dtype == np.uint8 else floats


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
