"""The discrete flow equations, Newton's method on them, and steps in time; their kernels.

Imported by the other modules of the flow solver; imports the flow case and numerics.
"""
