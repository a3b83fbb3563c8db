"""Cell-resolved blood flow: a lattice Boltzmann fluid with membranes immersed in it.

Loaded by solvers/registry.py, no other package imports it; imports mesh/lattice and all below.
pyproject.toml lists the order of its folders: each imports those below it.
"""
