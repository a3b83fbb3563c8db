"""Positions of the unknowns, and which rank owns which of them: blocks, bisection, partitions, halos.

Contains lattice, tets, hexes, surfaces and files. Imported by numerics and all above; imports
exchange, case, device, io and errors.
"""
