"""Terms added to Maxwell's right-hand sides: media, absorbing layers, currents, incident waves; their kernels.

Imported by the Maxwell solver, outputs and verification; imports its case and elements, mesh/hexes
and numerics.
"""
