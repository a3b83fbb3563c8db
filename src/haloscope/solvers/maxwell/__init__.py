"""Time-domain Maxwell's equations by spectral elements on curved hexahedra.

Loaded by solvers/registry.py, no other package imports it; imports mesh/hexes, numerics and all
below.
"""
