"""Commands of the command line, a file each: they read options, call the work, print.

Imported by __main__ only. The only folder that imports both the measurement system and the solvers'
runs.
"""
