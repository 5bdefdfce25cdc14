#!/usr/bin/env bash
# All tests, as processors without AVX-512, and without AVX2, compute them, and as this one does: nightly_isa.sh [BUILD_DIR, build]
# [LEVEL..., of: baseline avx2 avx512 own]; TESTS (a pattern of ctest, all) and JOBS (2) in the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
mpi_environment
build=${1:-build}
shift || true
levels=("$@")
[[ ${#levels[@]} -gt 0 ]] || levels=(baseline avx2 avx512 own)

# Our kernels, LibTorch's own, oneDNN's and MKL's each have a switch.
environment() {
  case $1 in
    baseline) echo QFT_CPU_ISA=baseline ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 ;;
    avx2) echo QFT_CPU_ISA=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 ;;
    avx512) echo QFT_CPU_ISA=avx512 ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE MKL_ENABLE_INSTRUCTIONS=AVX512 ;;
    own) ;;
    *) echo "level $1 is none of baseline, avx2, avx512, own" >&2 && return 2 ;;
  esac
}

failed=()
for level in "${levels[@]}"; do
  settings=$(environment "$level")
  say "$level ${settings:+($settings)}"
  # shellcheck disable=SC2086
  env $settings ctest --test-dir "$build" --output-on-failure --no-tests=error -j "${JOBS:-2}" -R "${TESTS:-.}" || failed+=("$level")
done
[[ ${#failed[@]} -eq 0 ]] || { echo "FAILED: ${failed[*]}" >&2; exit 1; }
echo "the same tests pass as: ${levels[*]}"
