"""Several devices: every one has the model (DDP), or its share of the frozen backbone (FSDP).

What is trained is a few per cent of the model, so it is the frozen weights that fill a device. With
`fsdp` they, and only they, are sharded: each block of the backbone lies in as many pieces as there
are devices, and is put together while it is used (PyTorch's FSDP2). Everything that is trained, its
gradients and the optimiser are those of DDP, and so are checkpoints, which hold no frozen weights:
a run may go on with the other strategy, or on another number of devices.

A sharded block waits for all devices. Whatever runs the model must therefore run it equally often
on every one of them (`ChangeTask.run_along`, `Keeper`).
"""

from __future__ import annotations

from typing import Any, cast

from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from adadino.errors import ConfigError
from adadino.training.config import RunConfig


class ShardedBackbone(DDPStrategy):
    """DDP over a model whose frozen blocks are sharded."""

    def configure_ddp(self) -> None:
        """Shard the blocks, then wrap what is left."""
        task = cast(nn.Module, self.model)
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        for block in cast(Any, task).model.dino.blocks:
            # Said and not left to chance: each block is a root to PyTorch, and roots stay whole.
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
        sharded = [name for name, weight in task.named_parameters() if isinstance(weight, DTensor)]
        # Without this DDP would send the shards of one device to all others.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(task, sharded)
        super().configure_ddp()


def choose_strategy(config: RunConfig) -> Any:
    """What Lightning is told.

    Raises:
        ConfigError: There is nothing that could be sharded.
    """
    settings, backbone = config.train, config.model.backbone
    if settings.strategy == "fsdp":
        if config.model.peer is not None or backbone.trainable or backbone.weights is None:
            raise ConfigError(
                "train.strategy=fsdp shards a frozen backbone that model.backbone.weights names; "
                "here there is none, so use train.strategy=ddp."
            )
        if settings.devices * settings.nodes == 1:
            raise ConfigError(
                "train.strategy=fsdp shares weights among devices, and there is one; use "
                "train.strategy=ddp, or set train.devices."
            )
        return ShardedBackbone(find_unused_parameters=True)
    several = settings.devices * settings.nodes > 1
    # Policies rest during the warm-up, priors have no gradient path: some are always unused.
    return "ddp_find_unused_parameters_true" if several else "auto"
