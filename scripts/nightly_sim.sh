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
for name in "${tests[@]}"; do
  on_sim system_test "$name"
done
all_passed
