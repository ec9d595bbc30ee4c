"""Triton kernels: one for each operation of `adadino.engine.kernels`, same names and arguments.

All of them are bound by memory, so each reads its operands once, computes in float32 and writes its
results once. Block shapes at the top of a file are what a GPU wants tuned. Imported only where
Triton runs; `TRITON_INTERPRET=1` runs them on a CPU, which is how the tests do it.
"""
