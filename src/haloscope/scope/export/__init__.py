"""Formats of other tools: Cube reports, OTF2 traces in and out, timelines for Perfetto."""
