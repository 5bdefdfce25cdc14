#!/usr/bin/env bash
# Ranks that share matrices and sequences, in their long forms: whole programs on the CPU and on the simulated device in more layouts, each kind
# of fault on each rank, memory of a larger model, every degree that a message gives. Usage: scripts/nightly_mesh.sh [BUILD_DIR] [TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
mpi_environment
build=$(realpath "${1:-build}")
shift || true
tests=("$@")
[[ ${#tests[@]} -gt 0 ]] || tests=(mesh mesh_answers mesh_input mesh_memory mesh_faults)
export HF_HUB_OFFLINE=1 PYTHONPATH=$PWD/tests/interop
failed=()

# pass NAME [VARIABLE=VALUE...]
pass() {
  local name=$1
  shift
  say "$name $*"
  env "$@" .venv/bin/python "tests/system/$name.py" --build "$build" --complete yes || failed+=("$name $*")
}

for name in "${tests[@]}"; do
  pass "$name"
  if [[ $name == mesh || $name == mesh_answers ]]; then
    pass "$name" QFT_DEVICE=sim "QFT_BACKEND_PATH=$build/tests" OMP_WAIT_POLICY=passive
  fi
done
[[ ${#failed[@]} -eq 0 ]] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
echo "passed: ${tests[*]}"
