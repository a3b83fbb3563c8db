"""Flows and cells that checks compare with published numbers and exact solutions.

Imported by checks.py of the blood solver; imports fluid, membranes, coupling and mesh/lattice.
"""
