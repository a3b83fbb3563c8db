"""Boundaries of flows: prescribed values, outlets, slip walls, integrals over boundaries.

Imported by the flow solver and equations/newton; imports flow/equations, mesh/tets, numerics and
all below.
"""
