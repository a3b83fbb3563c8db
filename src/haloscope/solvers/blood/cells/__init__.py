"""Cells in the fluid of a rank: their steps, ownership, and messages between ranks.

Imported by filling, fluid_with_cells and all above; imports coupling, fluid, membranes, mesh/lattice
and exchange.
"""
