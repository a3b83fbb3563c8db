"""Exact solutions of Maxwell's equations, and runs compared with them.

Imported by checks.py of the Maxwell solver; imports the solver, its terms and outputs.
"""
