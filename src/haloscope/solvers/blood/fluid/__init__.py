"""The lattice Boltzmann fluid: its points, populations, steps, boundaries and stresses.

Imported by cells, outputs, vessels, verification and the blood solver; imports
mesh/lattice and exchange.
"""
