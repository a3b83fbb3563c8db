"""Contents of a measurement folder: definitions, events, clocks, profiles.

Reads the files that record writes. Imported by all of scope and commands; imports record, analysis
and diagnosis.
"""
