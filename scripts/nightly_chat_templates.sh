#!/usr/bin/env bash
# Our renderer of chat templates against jinja2 as transformers runs it: 600 conversations for each template, 50,000 random expressions.
# nightly_chat_templates.sh [BUILD_DIR, build] [SEED, the day of the year]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build} seed=${2:-$(date +%-j)}
.venv/bin/python tests/interop/chat_templates.py --build "$build" --conversations 600 --expressions 50000 --seed "$seed"
