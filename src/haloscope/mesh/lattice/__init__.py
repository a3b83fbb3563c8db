"""Lattices in vessels: voxels, openings, walls, parts of ranks.

Imported by the blood solver and surfaces; imports surfaces, files, hexes, exchange and io.
"""
