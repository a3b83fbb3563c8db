"""Exchange between ranks: plans, packed messages, rows and sums of shared entries.

Contains ids, boxes and ranks; no grid, mesh or physical quantity. Imported by mesh and all above;
imports device, io, regions and errors.
"""
