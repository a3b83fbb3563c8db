"""Curved hexahedral meshes: generation, mappings, periodic faces, parts of ranks.

Imported by the Maxwell solver, numerics/elements and the rest of mesh; imports exchange.
"""
