"""Cells in the fluid of a rank: their steps, ownership, and messages between ranks.

Imported by the blood solver, outputs and feeding; imports coupling, fluid, membranes, mesh/lattice
and exchange.
"""
