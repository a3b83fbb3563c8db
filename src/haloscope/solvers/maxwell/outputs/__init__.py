"""What is computed from a run of the Maxwell solver: spectra at probes, far fields, energy.

Used by the Maxwell solver; imports its case, its terms and its mesh.
"""
