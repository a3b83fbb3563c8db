"""Forces and velocities between vertices and the lattice, repulsion, points inside cells.

Imported by cells, outputs, verification and the blood solver; imports device.
"""
