#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest: ./test.sh -L unit -R pack
# Where a CUDA toolkit is installed, the programs are built with CUDA as well, for the GPU of this machine or one kind that is
# common, with the tests of what differs (QFT_TEST_CUDA=0: not).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/common.sh

# run_tests BUILD [ctest's arguments...]: the slowest tests and what was skipped stand before ctest's closing lines.
run_tests() {
  ctest --test-dir "$1" --output-on-failure -j "$(nproc)" "${@:2}" 2>&1 | .venv/bin/python scripts/test_report.py "$1"
}

scripts/setup.sh test
mpi_environment
make_model

say "Build"
cmake --preset release >&2
cmake --build build -j "$(jobs)" >&2

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [[ -n $nvcc && ${QFT_TEST_CUDA:-1} != 0 ]]; then
  say "Build with CUDA ($nvcc), and the tests of what differs"
  chip=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true)
  CUDACXX=$nvcc cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="${chip:-90}-real" -DQFT_BENCHMARKS=OFF >&2
  cmake --build build-cuda -j "$(jobs)" --target qft qft-pack qft-ckpt cuda_tests >&2
  run_tests build-cuda -L cuda "$@"
fi

say "Tests"
run_tests build --no-tests=error "$@"
