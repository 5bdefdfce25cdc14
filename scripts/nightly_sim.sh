#!/usr/bin/env bash
# Whole programs on the simulated device: saves, resumes, predictions, stops, every strategy, beside the numbers that they are held
# to on the CPU. Usage: scripts/nightly_sim.sh [BUILD_DIR] [TEST..., of tests/system]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
mpi_environment
build=$(realpath "${1:-build}")
shift || true
tests=("$@")
[[ ${#tests[@]} -gt 0 ]] || tests=(resume elastic ranks predict strategies preference curriculum deterministic stopping programs)
export QFT_DEVICE=sim QFT_BACKEND_PATH=$build/tests OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 PYTHONPATH=$PWD/tests/interop
failed=()
for name in "${tests[@]}"; do
  say "$name"
  .venv/bin/python "tests/system/$name.py" --build "$build" || failed+=("$name")
done
[[ ${#failed[@]} -eq 0 ]] || { echo "FAILED: ${failed[*]}" >&2; exit 1; }
echo "on the simulated device pass: ${tests[*]}"
