"""Results of a Maxwell run: spectra at probes, far fields, radiated power, energy.

Imported by the Maxwell solver and verification; imports its case, terms and meshes, numerics and
io/figures.
"""
