"""Buoyancy- and lid-driven flow in a box: finite differences, artificial compressibility.

Loaded by solvers/registry.py, no other package imports it; imports mesh/blocks, mesh/halo,
numerics/reduce and all below.
"""
