"""Block matrices, preconditioners, GMRES and Krylov exponentials on ranks and devices.

Imports exchange for sums over ranks.
"""
