"""Scaling studies: sweeps of short timed runs, each checked against one rank, tabled and drawn.

Imports run and all below.
"""
