"""Numerical building blocks that know of no physics."""
