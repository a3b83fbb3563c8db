"""Lattices in vessels: voxels, openings, walls, parts of ranks.

Built from surfaces or shapes; used by the blood solver.
"""
