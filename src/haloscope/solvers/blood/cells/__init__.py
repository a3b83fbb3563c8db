"""Cells in the fluid of a rank: their step, who holds them, and what ranks tell each other."""
