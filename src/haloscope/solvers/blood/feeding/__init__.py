"""Cells that leave through openings, and cells that enter from a periodic flow before an inlet.

Imported by the blood solver and outputs; imports cells, filling, vessels, fluid_with_cells and all
below.
"""
