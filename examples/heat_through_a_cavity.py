"""How much heat crosses a square cavity, and how that grows with the Rayleigh number.

An example of the Python interface, in cells for an editor that knows `# %%`; as a script:
python examples/heat_through_a_cavity.py. It takes some ten seconds and writes
heat-through-a-cavity.png where it is started.
"""

# %% [markdown]
# ## One case
#
# `load` reads and checks a case file; `settings` change its keys as `--set` does on the command
# line. The grid here is coarse, so that all is done in seconds; so few nodes are computed as fast
# by one thread as by several.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import haloscope

CASE = Path(__file__).resolve().parent.parent / "cases" / "cavity-2d.toml"

QUICK = ["machine.threads=1", "run.tolerance=1e-4", "run.diagnostics_interval=200"]

simulation = haloscope.load(CASE, settings=[*QUICK, "cavity.nodes=49"])
summary = simulation.run()
print(f"{summary['steps']} steps, converged: {summary['converged']}")
print("\n".join(summary["headline"]))

# %% [markdown]
# ## Its fields
#
# A field is a NumPy array in the order (z, y, x); a plane flow has one plane in z. On the hot wall
# (the first column) the temperature falls at a rate that varies with height: most heat enters at
# the bottom, where the fluid is coldest.

# %%
temperature = simulation.field("T")
assert temperature is not None  # only ranks other than 0 get None
plane = temperature[0]
spacing = simulation.solver.spacing[0]
slope = (3 * plane[:, 0] - 4 * plane[:, 1] + plane[:, 2]) / (2 * spacing)  # K/m
difference = plane[:, 0].mean() - plane[:, -1].mean()  # K
local_nusselt = slope * 0.05 / difference  # the cavity is 0.05 m wide

# The mean over the wall by the trapezoidal rule is the Nusselt number of the summary.
mean = (local_nusselt[1:-1].sum() + 0.5 * (local_nusselt[0] + local_nusselt[-1])) / (
    len(local_nusselt) - 1
)
print(f"mean {mean:.4f}, in the summary {summary['diagnostics']['nusselt_wall']:.4f}")

# %% [markdown]
# ## A sweep
#
# Two grids for each Rayleigh number. The method is of second order, so Richardson's
# extrapolation takes out most of the error that is left.

# %%
RAYLEIGH = (1e3, 1e4, 1e5, 1e6)
GRIDS = (33, 65)
# G. de Vahl Davis, Int. J. Numer. Meth. Fluids 3 (1983) 249-264.
PUBLISHED = (1.118, 2.243, 4.519, 8.800)


def nusselt(rayleigh: float, nodes: int) -> float:
    """Mean Nusselt number on the hot wall."""
    case = haloscope.load(
        CASE, settings=[*QUICK, f"cavity.rayleigh={rayleigh}", f"cavity.nodes={nodes}"]
    )
    return float(case.run(ceilings=False)["diagnostics"]["nusselt_wall"])


coarse, fine = (np.array([nusselt(rayleigh, n) for rayleigh in RAYLEIGH]) for n in GRIDS)
ratio = (GRIDS[1] - 1) / (GRIDS[0] - 1)
extrapolated = fine + (fine - coarse) / (ratio**2 - 1)

print("      Ra" + "".join(f"{n:>5}^2" for n in GRIDS) + "  extrapolated  published")
for row in zip(RAYLEIGH, coarse, fine, extrapolated, PUBLISHED, strict=True):
    print("{:8.0e}{:7.3f}{:7.3f}{:14.3f}{:11.3f}".format(*row))

# %% [markdown]
# ## The picture

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")

height = np.arange(len(local_nusselt)) * spacing
left.plot(local_nusselt, height * 100)
left.set(xlabel="local Nusselt number", ylabel="height in cm", title="Hot wall, Ra = 1e5")

right.loglog(RAYLEIGH, extrapolated, "o-", label="Haloscope, extrapolated")
right.loglog(RAYLEIGH, PUBLISHED, "kx", markersize=9, label="de Vahl Davis 1983")
right.set(xlabel="Rayleigh number", ylabel="mean Nusselt number", title="Heat across the cavity")
right.set_yticks([1, 2, 4, 8], labels=["1", "2", "4", "8"])
right.minorticks_off()
right.legend()

figure.savefig("heat-through-a-cavity.png", dpi=120)
