"""Numerical methods without physics: Krylov solvers, elements, reductions, spectra.

Imported by solvers, run and study; imports mesh and all below.
"""
