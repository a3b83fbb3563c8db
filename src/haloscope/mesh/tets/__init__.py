"""Tetrahedral meshes: generation, files, faces, quality, parts of ranks.

Imported by the flow solver and numerics/elements; imports files, hexes, surfaces and exchange.
"""
