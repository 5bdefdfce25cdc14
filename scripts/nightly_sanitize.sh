#!/usr/bin/env bash
# Unit tests of what reads and writes files, under AddressSanitizer and UndefinedBehaviorSanitizer: nightly_sanitize.sh [JOBS, 1]
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-1}
tests=(core_test config_test dialects_test io_test tokenizer_test checkpoint_test pack_test loader_test encode_test)

cmake --preset sanitize
# checkpoint_test runs the program too.
nice cmake --build build-sanitize -j "$jobs" --target "${tests[@]}" qft-ckpt
nice ctest --preset sanitize -j "$jobs" -R "^($(IFS='|'; echo "${tests[*]}"))\$"
