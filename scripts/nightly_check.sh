#!/usr/bin/env bash
# Every fault that qft check must find, one at a time, on nodes made of namespaces; what it said becomes the table in docs/clusters.md.
# Needs root. Usage: scripts/nightly_check.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
mpi_environment
build=$(realpath "${1:-build}")
export OMP_WAIT_POLICY=passive PYTHONPATH=$PWD/tests/interop
.venv/bin/python tests/system/check_faults.py --build "$build" --each yes --table docs/clusters.md
