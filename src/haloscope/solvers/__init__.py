"""The solvers, each a package with its case keys, its kernels and its equations.

A solver contains no name of a transport, no rank number and no CUDA. Imported by run and all above;
imports numerics and all below; no other solver.
"""
