"""What `haloscope verify`, `bench` and `build` do, over all solvers.

Each solver declares its own checks. Imports run and all below.
"""
