"""Pictures: planes of fields, histories, spectra, profiles, surfaces.

Imported by solvers, run and study; imports NumPy, Matplotlib and io.
"""
