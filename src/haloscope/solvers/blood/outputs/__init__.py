"""Files, pictures and numbers of a blood run.

Imported by the blood solver; imports cell_in_outflow, cells, fluid, vessels, mesh/lattice, numerics and io.
"""
