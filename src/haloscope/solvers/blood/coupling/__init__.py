"""What acts between vertices and the lattice, and between vertices that are near."""
