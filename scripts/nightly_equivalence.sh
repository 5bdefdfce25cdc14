#!/usr/bin/env bash
# Every strategy x LoRA and full x each offload x g = 1, 2, all x recomputation on and off x 1, 2, 3 and 4 ranks against one
# rank, in fp64 to 1e-10: the product of which ctest runs a cover. Usage: scripts/nightly_equivalence.sh [BUILD_DIR] [DEVICE, cpu or sim]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
cmake --build "$build" --target parallel_device_test qft_sim
export QFT_EQUIVALENCE=full QFT_DEVICE=${2:-cpu} OMP_NUM_THREADS=1
if [[ $(id -u) == 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
failed=0
for ranks in 1 2 3 4; do
  start=$SECONDS
  if mpirun --oversubscribe --bind-to none -np "$ranks" "$build/tests/parallel_device_test" --gtest_filter='Equivalence.Fp64*' --gtest_brief=1; then
    echo "ok      $ranks ranks, $((SECONDS - start)) s"
  else
    echo "FAILED  $ranks ranks, $((SECONDS - start)) s"
    failed=1
  fi
done
exit "$failed"
