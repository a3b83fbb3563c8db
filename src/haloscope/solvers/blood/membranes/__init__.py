"""Cell membranes: their meshes, their elements, and the forces on their vertices."""
