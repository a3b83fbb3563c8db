"""Mesh files of other programs, with sizes checked before memory is allocated.

Returns points, cells and groups. Imported by tets, surfaces, lattice and solvers; imports exchange
and hexes.
"""
