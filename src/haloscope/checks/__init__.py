"""The work of `haloscope verify`, `bench` and `build`, over all solvers.

Each solver declares its own checks. Imported by commands; imports run and all below.
"""
