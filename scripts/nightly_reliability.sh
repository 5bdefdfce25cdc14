#!/usr/bin/env bash
# Resumes after cuts, kills, signals and harmed collectives, many of them; the same bits on up to 8 ranks: nightly_reliability.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
export PYTHONPATH=tests/interop HF_HUB_OFFLINE=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
.venv/bin/python tests/system/resume.py --build "$build" --cuts 13
.venv/bin/python tests/system/deterministic.py --build "$build" --ranks 8
.venv/bin/python tests/system/kills.py --build "$build" --kills 200
.venv/bin/python tests/system/pack_kill.py --build "$build" --kills 40
.venv/bin/python tests/system/signals.py --build "$build" --signals 300
.venv/bin/python tests/system/watchdog.py --build "$build" --positions 24
.venv/bin/python tests/system/sixteen_ranks.py --build "$build" --steps 30
.venv/bin/python tests/system/stall.py --build "$build"
