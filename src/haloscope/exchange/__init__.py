"""Who sends what to whom: plans, packed messages, sums of shared entries.

Knows ids, boxes and ranks, no grid, mesh or physical quantity. Imports device, io and regions.
"""
