"""Points, openings, walls and signals of the vessel of a case.

Imported by feeding, outputs and the blood solver; imports case, fluid, mesh/lattice and
mesh/surfaces.
"""
