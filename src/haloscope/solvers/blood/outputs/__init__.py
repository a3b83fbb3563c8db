"""Files, pictures and numbers of a blood run.

Imported by the blood solver; imports feeding, cells, fluid, vessels, mesh/lattice, numerics and io.
"""
