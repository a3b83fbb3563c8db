"""Files: checkpoints, fields for ParaView, pictures, and writes that never lose what was there.

Imports errors only.
"""
