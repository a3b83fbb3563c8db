"""The discrete flow equations, Newton's method on them, and steps in time; their kernels.

Used by flow/boundaries and the flow solver; imports nothing else of the flow solver but its case.
"""
