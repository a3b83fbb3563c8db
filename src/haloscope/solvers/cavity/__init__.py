"""Buoyancy- and lid-driven flow in a box: finite differences, artificial compressibility."""
