"""Time-domain Maxwell's equations by spectral elements on curved hexahedra."""
