"""Cell membranes: their meshes, their elements, and the forces on their vertices.

Imported by cells, feeding, verification and the blood solver; imports device.
"""
