"""Surfaces of triangles: files, generators, checks, openings.

Used by lattices.
"""
