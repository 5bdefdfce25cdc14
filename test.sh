#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest: ./test.sh -L unit -R pack
# Where a CUDA toolkit is installed, its back end is built as well, for the GPU of this machine or one kind that is common.
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
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
chip=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true)
[[ -z $nvcc ]] || export CUDACXX=$nvcc CUDAToolkit_ROOT=${nvcc%/bin/nvcc}
cmake --preset release ${nvcc:+-DCMAKE_CUDA_ARCHITECTURES="${chip:-90}-real"} >&2
cmake --build build -j "$(jobs)" >&2

say "Tests"
run_tests build --no-tests=error "$@"
