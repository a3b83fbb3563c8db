"""Files: checkpoints, fields for ParaView, text, and writes that never lose the previous file.

Imported by all but errors and regions; imports errors.
"""
