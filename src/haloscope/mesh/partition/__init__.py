"""Cuts elements between ranks: recursive bisection and graphs.

Knows centres, loads and neighbours, no kind of mesh.
"""
