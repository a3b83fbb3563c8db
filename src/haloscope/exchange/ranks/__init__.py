"""Processes of a run: world, launching with mpiexec, cores and threads, ends of ranks.

Imports nothing of the exchange above it.
"""
