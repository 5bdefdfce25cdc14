#!/usr/bin/env bash
# Runs the judges themselves over all cases: transformers' reading of the demo's model, every Unicode block in each tokenizer, the steps
# of a training run, embedding models and rerankers. The tests compare with recorded values or with a part of the cases. It fails if
# a judge differs from a recorded value, and the recorded values stay: to accept new ones, remove the file that it names, and start
# again. nightly_judges.sh [BUILD_DIR, build]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
export HF_HUB_OFFLINE=1
source scripts/common.sh
mpi_environment
.venv/bin/python tests/examples/make_smollm2_test.py examples/make_smollm2.py --judge --shared ../shared
.venv/bin/python tests/tokenizer/interop.py --program "$build/tests/tokenizer_pipe" --shared ../shared --judge
.venv/bin/python tests/tokenizer/interop.py --program "$build/tests/tokenizer_pipe" --shared ../shared --complete
.venv/bin/python tests/interop/training_parity.py --build "$build" --judge yes
.venv/bin/python tests/interop/embedding_parity.py --build "$build" --layouts 2
