"""Tetrahedral meshes: generation, files, faces, quality, parts of ranks.

Used by the flow solver.
"""
