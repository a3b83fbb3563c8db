"""Pictures: planes of fields, histories, spectra, profiles, surfaces.

Used by solvers, run and study; imports NumPy, Matplotlib and io.
"""
