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
for name in "${tests[@]}"; do
  system_test "$name" --complete yes
  [[ $name != mesh && $name != mesh_answers ]] || on_sim system_test "$name" --complete yes
done
all_passed
