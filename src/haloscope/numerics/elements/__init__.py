"""Spectral elements and tetrahedra: geometry, interpolation, location of points, samples.

Imports meshes.
"""
