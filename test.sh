#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest: ./test.sh -L unit -R pack
# Where a CUDA toolkit is installed, the CUDA variant is built as well and its unit tests run (QFT_TEST_CUDA=0: not).
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
  say "Build and unit tests of the CUDA variant ($nvcc)"
  CUDACXX=$nvcc cmake --preset cuda >&2
  cmake --build build-cuda -j "$(jobs)" >&2
  run_tests build-cuda -L unit "$@"
fi

say "Tests"
run_tests build --no-tests=error "$@"
