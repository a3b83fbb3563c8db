"""Cell membranes: their meshes, their elements, and the forces on their vertices.

Imported by cells, filling, verification and the blood solver; imports device.
"""
