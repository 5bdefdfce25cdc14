#!/usr/bin/env bash
# The words of ROUGE against jieba's own, one by one, of 20,000 sentences: of ../shared, and mixtures of words, random characters,
# letters, digits, marks and emoji. nightly_words.sh [BUILD_DIR, build] [SEED, the day of the year]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build} seed=${2:-$(date +%-j)}
.venv/bin/python tests/eval/words_interop.py --build "$build" --sentences 20000 --seed "$seed"
