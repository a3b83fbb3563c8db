"""The solvers, each a package with its case keys, its kernels and its equations.

A solver names no transport, no rank number and no CUDA. Imports numerics and all below; no other solver.
"""
