"""Tables, quantities and expressions that every case file shares.

Keys of one solver are in solvers/<name>/case.py. Imports io and errors.
"""
