"""Commands of the command line, a file each: they read options, call the work, print.

The only room that imports the measurement system and the solvers' run together.
"""
