"""Exact solutions of Maxwell's equations, and runs compared with them.

Used by checks; imports the Maxwell solver.
"""
