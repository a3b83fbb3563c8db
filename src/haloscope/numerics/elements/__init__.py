"""Spectral elements and tetrahedra: geometry, interpolation, location of points, samples.

Imported by run and the flow and Maxwell solvers; imports mesh, exchange and io.
"""
