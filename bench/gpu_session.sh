#!/bin/bash
# Checks and times all that needs GPUs, in one call: bench/gpu_session.sh [tests|verify|rates|energy|several|studies] ...
#
# Without a part it does all of them, which takes some 15 minutes; each command has a time limit of its
# own. `several` and `studies` need two GPUs or more. The packages of pyproject.toml must be there, or on PYTHONPATH.
set -u
cd "$(dirname "$0")/.." || exit
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export HALOSCOPE_CACHE=${HALOSCOPE_CACHE:-$(mktemp -d)}
GPUS=$(nvidia-smi -L | wc -l)
LANES=5 # test processes for each GPU

tests() {
  local ids lane
  mapfile -t ids < <(python3 -m pytest tests/gpu -q --collect-only -p no:cacheprovider | grep ::)
  for ((lane = 0; lane < LANES * GPUS; lane++)); do
    local own=()
    for ((n = lane; n < ${#ids[@]}; n += LANES * GPUS)); do own+=("${ids[n]}"); done
    CUDA_VISIBLE_DEVICES=$((lane % GPUS)) timeout 400 \
      python3 -m pytest -q -p no:cacheprovider "${own[@]}" 2>&1 | grep -a -E "^FAILED|^ERROR|passed|failed" &
  done
  wait
}

# All checks, several at a time; their results, for docs/generate_verification.py, go to the folder $RESULTS.
verify() {
  local results=${RESULTS:-$(mktemp -d)}
  mkdir -p "$results"
  python3 -m haloscope verify --list | cut -d ' ' -f 1 | xargs -P $((LANES * GPUS)) -I NAME bash -c '
    CUDA_VISIBLE_DEVICES=$((RANDOM % $2)) timeout 580 python3 -m haloscope verify NAME --all --json \
      --device cuda >"$1/NAME.json" 2>"$1/NAME.log" || echo "NAME: $(tail -n 1 "$1/NAME.log")"' verify "$results" "$GPUS"
  python3 - "$results" <<'PY'
import json, pathlib, sys

rows = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    text = path.read_text()
    rows |= json.loads(text)["checks"] if text else {}
for name, row in rows.items():
    if not row["ok"]:
        print(f"MISS {name}: {row}")
print(f"{sum(row['ok'] for row in rows.values())} of {len(rows)} comparisons hold")
PY
}

rates() {
  timeout 120 python3 -m haloscope bench cavity --device cuda
  timeout 60 python3 bench/cavity_steps.py --cubes 96 150 220 300 384 400 512
  timeout 60 python3 bench/cavity_steps.py --cubes 96 150 220 300 384 400 512 --set cavity.precision=single
  timeout 60 python3 bench/cavity_power.py --nodes 512
  timeout 200 python3 bench/blood_gpu.py --sections fluid cells
  timeout 60 python3 bench/blood_steps.py --points 128 --phases
  timeout 60 python3 bench/blood_steps.py --points 128 --delta linear
}

# Joules of runs, as their summaries tell them.
energy() {
  local out
  out=$(mktemp -d)
  timeout 100 python3 -m haloscope run cases/cavity-demo.toml --device cuda --out "$out/cavity" \
    --set cavity.nodes=256 --set run.steps=5000 --set run.tolerance=0 | tail -3
  timeout 100 python3 -m haloscope run cases/blood-red-cell.toml --device cuda --out "$out/blood" | tail -3
  python3 - "$out" <<'PY'
import json, pathlib, sys

for path in sorted(pathlib.Path(sys.argv[1]).glob("*/summary.json")):
    print(path.parent.name, json.loads(path.read_text())["energy"])
PY
}

# ranks N SCRIPT ARGUMENTS: a script on N ranks, started with the mpiexec of mpi4py's MPI.
ranks() {
  local command
  mapfile -t command < <(python3 - "$@" <<'PY'
import os, sys

from haloscope.exchange.ranks.launch import find_mpiexec, start_command

environment = {name: os.environ[name] for name in ("PYTHONPATH", "HALOSCOPE_CACHE")}
program = [sys.executable, *sys.argv[2:]]
print(*start_command(find_mpiexec(), int(sys.argv[1]), program, environment), sep="\n")
PY
  )
  ((${#command[@]})) && timeout 120 "${command[@]}"
}

several() {
  local n=$GPUS cut
  ((n >= 2)) || { echo "several: one GPU alone"; return; }
  ranks "$n" tests/mpi/exchange_contract.py cuda peer nccl staged
  ranks "$n" bench/exchange_links.py
  for cut in "[$n,1,1]" "[1,$n,1]" "[1,1,$n]"; do
    ranks "$n" bench/cavity_steps.py --nodes 256 --set "machine.decomposition=$cut"
  done
  for cut in "[$n,1,1] $((256 * n)) 256 256" "[1,$n,1] 256 $((256 * n)) 256" "[1,1,$n] 256 256 $((256 * n))"; do
    ranks "$n" bench/cavity_steps.py --nodes ${cut#* } --set "machine.decomposition=${cut%% *}"
  done
  ranks "$n" bench/blood_steps.py --points 128 128 $((128 * n)) --phases
  ranks "$n" bench/blood_steps.py --points 128 128 $((128 * n)) --delta linear
}

# Whether cuts along each axis and the rungs between GPUs have the bits of one rank, and what they take.
studies() {
  local out
  ((GPUS >= 2)) || { echo "studies: one GPU alone"; return; }
  out=$(mktemp -d)
  timeout 120 python3 -m haloscope scale studies/cavity-cuts.toml --out "$out/cuts" >/dev/null
  timeout 120 python3 -m haloscope scale studies/figure-07.toml --only direct --out "$out/ladder" >/dev/null
  grep -h -E "^\||bits of one rank\\.$" "$out"/*/report.md
}

nvidia-smi -L
for parts in "${@:-tests verify rates energy several studies}"; do
  for part in $parts; do
    case $part in
      tests | verify | rates | energy | several | studies) echo "== $part" && "$part" ;;
      *) echo "bench/gpu_session.sh: unknown part '$part'; allowed: tests, verify, rates, energy, several, studies" >&2 && exit 2 ;;
    esac
  done
done
