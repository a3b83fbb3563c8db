"""Where the unknowns lie and which rank owns which of them.

Rooms: grid, lattice, tets, hexes, surfaces, partition, files. Imports exchange, case, io and device.
"""
