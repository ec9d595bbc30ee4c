"""Triton kernels: one for each operation of `adadino.engine.ops`, same names and arguments.

All of them are bound by memory, so each reads its operands once, computes in float32 and writes its
results once. Block shapes at the top of a file are what a GPU wants tuned. Numbers that follow the
batch are `do_not_specialize`: Triton would compile a kernel again for a batch of one, and again for
one that sixteen divides, and gain nothing. A few loops over an image's tokens are unrolled by their
count, and compiled once for each size of image. Imported only where Triton runs;
`TRITON_INTERPRET=1` runs them on a CPU, which is how the tests do it.
"""
