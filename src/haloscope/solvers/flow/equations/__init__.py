"""The discrete flow equations, Newton's method on them, and steps in time; their kernels.

Imported by flow/boundaries and the flow solver; imports flow/boundaries/outlets, the flow case and
numerics.
"""
