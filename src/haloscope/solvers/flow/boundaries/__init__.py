"""Boundaries of flows: prescribed values, outlets, slip walls, integrals over boundaries.

Used by the flow solver; imports flow/equations and what lies below the solvers.
"""
