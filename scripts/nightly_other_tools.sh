#!/usr/bin/env bash
# Every example of ms-swift and LLaMA-Factory against docs/other_tools.md, of which ctest takes a part; --write makes the page anew.
# Usage: scripts/nightly_other_tools.sh [BUILD_DIR] [--write]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
cmake --build "$build" --target qft
if [[ $(id -u) == 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
PYTHONPATH=tests/interop .venv/bin/python tests/system/other_tools.py --build "$build" "${@:2}"
