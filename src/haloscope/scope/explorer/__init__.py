"""Shows a measurement in a browser: the server, and the page as one file.

static/ is the page; loopback.py serves any page of one session. Imported by commands and gpu; imports
analysis, diagnosis, gpu, replay and trace.
"""
