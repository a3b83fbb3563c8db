"""Cell-resolved blood flow: a lattice Boltzmann fluid with membranes immersed in it."""
