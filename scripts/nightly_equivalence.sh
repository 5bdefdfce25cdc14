#!/usr/bin/env bash
# Every strategy x LoRA and full x each offload x g = 1, 2, all x recomputation on and off x 1, 2, 3 and 4 ranks against one
# rank, in fp64 to 1e-10: the product of which ctest runs a cover. On the CPU also all cases of the other comparisons with one rank
# (objectives, adapters, optimizers), which ctest divides among numbers of ranks, and all cases of the grid that suit 2, 3, 4, 8 and
# 16 ranks.
# Usage: scripts/nightly_equivalence.sh [BUILD_DIR] [DEVICE, cpu or sim]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
cmake --build "$build" --target parallel_device_test parallel_mpi_test parallel_grid_test qft_sim
export QFT_EQUIVALENCE=full QFT_DEVICE=${2:-cpu} OMP_NUM_THREADS=1
if [[ $(id -u) == 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
failed=0

# compare RANKS PROGRAM [FILTER]
compare() {
  local start=$SECONDS what="$1 ranks, $2"
  if mpirun --oversubscribe --bind-to none -np "$1" "$build/tests/$2" --gtest_filter="${3:-*}" --gtest_brief=1; then
    echo "ok      $what, $((SECONDS - start)) s"
  else
    echo "FAILED  $what, $((SECONDS - start)) s"
    failed=1
  fi
}

for ranks in 1 2 3 4; do
  compare "$ranks" parallel_device_test 'Equivalence.Fp64*'
  [[ $QFT_DEVICE != cpu || $ranks == 1 ]] || compare "$ranks" parallel_mpi_test
done
[[ $QFT_DEVICE != cpu ]] || for ranks in 2 3 4 8 16; do QFT_GRID=all compare "$ranks" parallel_grid_test; done
exit "$failed"
