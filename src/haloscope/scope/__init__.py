"""Measurement: what the rest of the program knows of it is `regions`."""
