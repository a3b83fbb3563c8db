"""Transports: ways in which a packed message gets from one rank to another.

contract.py is the interface; exchange/choice.py opens them by name. Imported by exchange, run and
study; imports exchange/plan, exchange/ranks and device.
"""
