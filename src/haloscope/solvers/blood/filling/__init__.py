"""Kinds of cells, and vessels filled with rigid cells to a hematocrit.

Imported by fluid_with_cells, periodic_flow, kernels and the solver; imports cells, membranes and mesh.
"""
