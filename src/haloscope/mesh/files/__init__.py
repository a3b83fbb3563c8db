"""Mesh files of other programs, with sizes checked before memory is allocated.

Returns points, cells and groups; hexes and tets make meshes of them.
"""
