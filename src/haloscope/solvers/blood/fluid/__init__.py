"""The lattice-Boltzmann fluid: its points, how they step, and what its populations tell."""
