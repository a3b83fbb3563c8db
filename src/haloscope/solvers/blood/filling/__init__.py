"""Fills a vessel with rigid cells to a hematocrit.

Imported by cell_kinds, feeding and the blood solver; imports device and mesh/hexes.
"""
