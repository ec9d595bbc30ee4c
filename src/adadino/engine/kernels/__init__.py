"""Triton kernels: one for each operation of `adadino.engine.ops`, same names and arguments.

All of them are bound by memory, so each reads its operands once, computes in float32 and writes its
results once. The block shapes at the top of a file are tuned for one GPU (H200). Numbers that
follow the batch are `do_not_specialize`: otherwise Triton would compile a kernel again for a batch
of one and for multiples of sixteen, and gain nothing. A few loops over an image's tokens are
unrolled by their count, and compiled once for each size of image. This package is imported only
where Triton runs. `TRITON_INTERPRET=1` runs the kernels on a CPU: so do the tests.

`norm.py` (LayerNorms), `attention.py` (with the rotation), `select.py` (the policy), `gather.py`
and `activation.py` are the kernels of `ops/block.py`; `local.py`, `residual.py` and `norm.py`'s
`pair_norm` those of `ops/adapter.py`.
"""
