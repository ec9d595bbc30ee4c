"""The step as one module; recording itself needs a GPU."""

from __future__ import annotations

import pytest
import torch

from adadino.errors import ConfigError
from adadino.losses import total_loss, weigh
from adadino.model.adadino import AdaDINO
from adadino.training.config import TrainConfig
from adadino.training.step import StepLoss, keep_gradients, record
from tests.conftest import randomise


def batch(device: str = "cpu"):
    mask = (torch.rand(2, 32, 32, device=device) > 0.8).to(torch.uint8)
    return torch.rand(2, 3, 32, 32, device=device), torch.rand(2, 3, 32, 32, device=device), mask


def test_the_terms_weigh_up_to_the_whole_loss(small):
    model = AdaDINO(small).train()
    before, after, mask = batch()
    got = weigh(StepLoss(model, k=3, dice="foreground")(before, after, mask), 0.01)
    output = model(before, after, k=3)
    assert output.responses is not None
    wanted = total_loss(
        output.logits, output.pyramid, output.responses.delta, mask, lambda_cgla=0.01,
        dice="foreground",
    )  # fmt: skip
    torch.testing.assert_close(tuple(got), tuple(wanted))


def test_kept_gradients_lie_elsewhere():
    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    before = {name: p.grad for name, p in layer.named_parameters()}
    keep_gradients(layer)
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter.grad, before[name])
        assert parameter.grad.data_ptr() != before[name].data_ptr()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpointing": True}, "does not go with train.checkpointing"),
        ({"devices": 2}, "one device; set train.devices=1"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(cuda_graph=True, **changes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs a GPU")
@pytest.mark.parametrize("k", [3, 8])
def test_a_recorded_step_equals_the_plain_one(small, k):
    model = randomise(AdaDINO(small).cuda().train())
    step = StepLoss(model, k=k, dice="foreground")
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    recorded = record(step, batch("cuda"), bf16=False)
    assert all(torch.equal(buffer, buffers[n]) for n, buffer in model.named_buffers())
    fresh = batch("cuda")
    weigh(recorded(*fresh), 0.01).total.backward()
    got = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    plain = StepLoss(model, k=k, dice="foreground")
    weigh(plain(*fresh), 0.01).total.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(got[name], parameter.grad, rtol=1e-3, atol=1e-4)
