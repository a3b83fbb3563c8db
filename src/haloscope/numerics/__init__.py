"""Numerical methods without physics: Krylov solvers, elements, reductions, spectra.

Imports mesh and all below.
"""
