#!/bin/bash
# Everything that a machine with a GPU is asked for in one call: tests, verification, rates.
set -u
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export HALOSCOPE_CACHE=${HALOSCOPE_CACHE:-$(mktemp -d)}
nvidia-smi -L
python3 -m pytest tests/gpu -q -p no:cacheprovider 2>&1 | tail -25
python3 -m haloscope verify --all --device cuda 2>&1 | grep -E "MISS|hold|error"
python3 -m haloscope bench cavity --device cuda
python3 - <<'PY'
import haloscope

settings = ["cavity.nodes=1024", "run.diagnostics_interval=100", 'cavity.time_step="global"']
simulation = haloscope.load("cases/cavity-demo.toml", settings=settings, device="cuda")
summary = simulation.run(steps=100)
print("1024^3:", summary["rate"], "ssspnt", summary["ssspnt"], "GB", summary["memory_bytes"] / 1e9)
PY
