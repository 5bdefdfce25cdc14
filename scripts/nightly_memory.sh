#!/usr/bin/env bash
# Packs a large file on two ranks, none of which may take 500 MB, and holds the memory plan against more ways of training than
# the test does: nightly_memory.sh [MEGABYTES, 1000] [TOKENIZER_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
tokenizer=${2:-models/smollm2}
.venv/bin/python tests/system/pack_memory.py --build build --megabytes "${1:-1000}" --ranks 2 --limit 500 \
  --tokenizer "$tokenizer" --scratch "${TMPDIR:-/tmp}"
source scripts/common.sh
mpi_environment
PYTHONPATH=tests/interop HF_HUB_OFFLINE=1 .venv/bin/python tests/system/memory.py --build build --complete yes
