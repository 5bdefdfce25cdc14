#!/usr/bin/env bash
# What trains x base format x optimizer x strategy x {dense, experts} on two ranks against one, of which ctest takes a part; --write makes
# docs/matrix.md anew, --pairs K takes K of the six pairs of strategy and model for each cell. About an hour on two idle cores;
# --jobs N takes N cells at a time.
# Usage: scripts/nightly_matrix.sh [BUILD_DIR] [--pairs K] [--jobs N] [--write]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
source scripts/common.sh
mpi_environment
cmake --build "$build" --target qft qft-pack
PYTHONPATH=tests/interop .venv/bin/python tests/system/matrix.py --build "$build" "${@:2}"
