"""A module as a graph, by torch.export; and that graph as ONNX."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from adadino.errors import AdaDINOError

if TYPE_CHECKING:
    from onnx import ModelProto

SMALLEST_SIDE, LARGEST_SIDE, LARGEST_BATCH = 2, 1 << 14, 1 << 10
"""Sides and batches that the graph takes."""


def trace(module: nn.Module, names: tuple[str, ...], example: Tensor, *, fixed: bool) -> Any:
    """Trace a module that takes images.

    Args:
        module: The module; its arguments have the given names.
        names: Names of its inputs, which all have the example's shape.
        example: An input (B, C, H, W).
        fixed: Take this shape only; else any batch, height and width.

    Raises:
        AdaDINOError: Torch cannot trace it.
    """
    dims = {0: Dim("batch", min=1, max=LARGEST_BATCH)}
    dims |= {
        2: Dim("height", min=SMALLEST_SIDE, max=LARGEST_SIDE),
        3: Dim("width", min=SMALLEST_SIDE, max=LARGEST_SIDE),
    }
    inputs = tuple(torch.rand_like(example) for _ in names)
    with torch.no_grad(), _tracing(fixed=fixed):
        try:
            program = torch.export.export(
                module,
                inputs,
                dynamic_shapes=None if fixed else dict.fromkeys(names, dims),
                strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
        except Exception as error:  # torch's own, of many types
            way = "" if fixed else " Export for one size instead: --size 256."
            raise AdaDINOError(
                f"torch {torch.__version__} cannot trace this model ({type(error).__name__}).{way}"
            ) from error
    _thin(program)
    return program


def to_onnx(
    program: ExportedProgram, *, names: tuple[str, ...], output: str, opset: int
) -> ModelProto:
    """Turn a traced graph into ONNX.

    Raises:
        AdaDINOError: The packages for it are missing, or it has an operator that ONNX lacks.
    """
    try:
        import onnxscript  # noqa: F401  # torch's own message names neither the extra nor pip
    except ImportError as error:
        raise AdaDINOError(
            "writing ONNX needs onnx and onnxscript, which are not installed: "
            "pip install 'adadino[export]'"
        ) from error
    fixed = not any(isinstance(size, torch.SymInt) for size in _sizes(program))
    with _tracing(fixed=fixed):
        try:
            converted = torch.onnx.export(
                program,
                dynamo=True,
                input_names=names,
                output_names=[output],
                opset_version=opset,
                external_data=False,
                # The runtime does the same when it loads the file, in seconds instead of minutes.
                optimize=False,
                verbose=False,
            )
        except Exception as error:  # torch's own, of many types and many lines
            raise AdaDINOError(
                f"torch {torch.__version__} cannot write this model as ONNX "
                f"({type(error).__name__}); export to .pt2 instead."
            ) from error
    assert converted is not None
    proto: ModelProto = converted.model_proto
    name_casts(proto)
    _tidy(proto, {"batch": 0, "height": -2, "width": -1})
    return proto


@contextmanager
def _tracing(*, fixed: bool) -> Iterator[None]:
    """Torch's settings for graphs whose sizes are unknown; its own messages are silenced."""
    import torch._dynamo.config as dynamo
    import torch.fx.experimental._config as shapes

    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        logging.disable(logging.ERROR)  # torch complains that torchvision is missing
        try:
            # The cache compares unknown sizes, which takes longer than what it saves.
            with (
                redirect_stderr(io.StringIO()),  # on failure torch prints the whole graph
                shapes.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
                dynamo.patch(fake_tensor_cache_enabled=fixed),
            ):
                yield
        finally:
            logging.disable(disabled)


def name_casts(proto: ModelProto) -> None:
    """Turn every `CastLike` whose type is known into `Cast`, in place.

    onnxruntime has no kernel for `CastLike`. It warns of each when it loads the file.
    """
    from onnx import helper, shape_inference

    graph = shape_inference.infer_shapes(proto).graph
    described = (*graph.input, *graph.value_info, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in described}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "CastLike" and (kind := types.get(node.input[1])):
            node.op_type = "Cast"
            del node.input[1]
            node.attribute.append(helper.make_attribute("to", kind))


def _sizes(program: ExportedProgram) -> Iterator[Any]:
    """The sizes of the inputs."""
    for node in program.graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor):
            yield from node.meta["val"].shape


def _thin(program: ExportedProgram) -> None:
    """Remove what tracing leaves behind: hundreds of checks, and lines of source code.

    The checks compare one size with another. They hold by how the graph was written, and the
    finished file is compared with the model.
    """
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is torch.ops.aten._assert_scalar.default:
            graph.erase_node(node)
        for name in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node"):
            node.meta.pop(name, None)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _tidy(proto: ModelProto, axes: dict[str, int]) -> None:
    """Name the unknown sizes, and leave out where in the source each node came from."""
    for value in [*proto.graph.input, *proto.graph.output]:
        dims = value.type.tensor_type.shape.dim
        for name, axis in axes.items():
            if dims[axis].dim_param:
                dims[axis].dim_param = name
    for part in [proto.graph, *proto.graph.node, *proto.graph.value_info]:
        del part.metadata_props[:]
        if hasattr(part, "doc_string"):
            part.doc_string = ""
    del proto.graph.value_info[:]  # shapes inside the graph: long formulas that nobody reads
