#!/usr/bin/env bash
# What the tests hold against recorded values, or against a part of the cases, held against the judges themselves and against
# all: transformers' reading of the demo's model, and every Unicode block in each tokenizer. nightly_judges.sh [BUILD_DIR, build]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
export HF_HUB_OFFLINE=1
.venv/bin/python tests/examples/make_smollm2_test.py examples/make_smollm2.py --judge --shared ../shared
.venv/bin/python tests/tokenizer/interop.py --program "$build/tests/tokenizer_pipe" --shared ../shared --complete
