"""The solvers, each a package with its case keys, its kernels and its equations."""
