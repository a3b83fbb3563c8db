"""Incompressible flow by stabilised finite elements on tetrahedra."""
