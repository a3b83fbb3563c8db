"""Block matrices, preconditioners, GMRES and Krylov exponentials on ranks and devices.

Imported by the flow and Maxwell solvers; imports mesh/surfaces, and exchange for sums over ranks.
"""
