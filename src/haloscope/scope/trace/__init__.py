"""What a measurement holds: definitions, events, clocks, profiles.

Readers of the files that scope/record writes.
"""
