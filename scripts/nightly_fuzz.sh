#!/usr/bin/env bash
# Runs every fuzz target for a while with libFuzzer: nightly_fuzz.sh [SECONDS a target, 600] [TARGET...]
# What it finds lies in build-fuzz/found-*; mend it and add the file to tests/fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus)

cmake --preset fuzz
cmake --build --preset fuzz
# Leaks: HDF5 keeps memory of files that it refuses.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
for target in "${targets[@]}"; do
  mkdir -p "build-fuzz/corpus/$target"
  "build-fuzz/tests/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/found-$target-" "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" 2>&1 |
    grep -v "^#.*\(NEW\|REDUCE\|RELOAD\|pulse\)" | tail -40
  echo "$target: nothing found in $seconds s"
done
