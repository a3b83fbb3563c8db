#!/bin/bash
# Everything that a machine with GPUs is asked for, in one call: checks, then times.
set -u
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}src PYTHONUNBUFFERED=1
export HALOSCOPE_CACHE=/tmp/haloscope-kernels
nvidia-smi -L
python3 - <<'PY'
import numpy as np, time
from haloscope.device import open_device
d = open_device("cuda"); print(d.name, d.architecture)
from haloscope.case import check
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.exchange.world import World
import itertools
cpu = open_device("cpu")
for dims, mode, precision, rescale in itertools.product((3, 2), ("local", "global"), ("double", "single"), ("output", "step")):
    data = {"solver": "cavity", "cavity": {"nodes": 40, "dimensions": dims, "time_step": mode, "precision": precision,
            "rescale_pressure": rescale, "initial": {"T": "300 + 3*sin(90*x)*cos(55*y)", "u": "0.001*sin(300*y)"}}}
    case = check(data, CavityCase, "gpu")
    a, b = CavitySolver(case, cpu, World()), CavitySolver(case, d, World())
    a.advance(100); b.advance(100)
    worst = max(float(np.abs(a.owned(n) - b.owned(n)).max() / np.abs(a.owned(n)).max()) for n in a.fields)
    print(dims, mode, precision, rescale, "largest relative difference", worst, a.residual() == b.residual())
PY
