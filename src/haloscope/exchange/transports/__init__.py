"""Ways in which a packed message gets from one rank to another, a file each.

contract.py is what each implements; opening.py chooses by name.
"""
