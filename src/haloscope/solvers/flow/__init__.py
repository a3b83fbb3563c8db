"""Incompressible flow by stabilised finite elements on tetrahedra.

Loaded by solvers/registry.py, no other package imports it; imports mesh/tets, numerics and all
below.
"""
