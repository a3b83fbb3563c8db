"""Formats of other tools: Cube reports, OTF2 traces in and out, timelines for Perfetto.

Imported by commands and analysis; imports analysis, record, replay and trace.
"""
