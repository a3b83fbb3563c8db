"""Terms added to Maxwell's right-hand sides: media, absorbing layers, currents, incident waves; their kernels.

Used by the Maxwell solver; imports its case and its mesh.
"""
