"""Structured grids cut into blocks: halo exchange, fields, values at points.

Used by the cavity; boxes of other meshes import only blocks.
"""
