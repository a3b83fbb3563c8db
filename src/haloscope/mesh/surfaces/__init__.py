"""Surfaces of triangles: files, generators, checks, openings.

Imported by lattice, tets, numerics/krylov and the blood solver; imports files and lattice.
"""
