"""Kernels of the Numba backend: what csrc/kernels is to the native one, written once over 16 virtual lanes."""
