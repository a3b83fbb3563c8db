"""Curved hexahedral meshes: generation, mappings, periodic faces, parts of ranks.

Used by the Maxwell solver.
"""
