"""Tables, quantities and expressions that every case file shares.

Keys of one solver are in solvers/<name>/case.py. Imported by solvers and all above; imports io and
errors.
"""
