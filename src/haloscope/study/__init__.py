"""Scaling studies: sweeps of short timed runs, each checked against one rank, tabled and drawn.

Imported by commands; imports run and all below.
"""
