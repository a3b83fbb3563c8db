"""Processes of a run: world, launching with mpiexec, cores and threads, ends of ranks.

Imported by all of exchange and above; imports device, io and errors.
"""
