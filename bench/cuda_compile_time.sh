#!/usr/bin/env bash
# CPU seconds that the kernels take to compile, one file after the other: bench/cuda_compile_time.sh [REVISION]. With a revision, those
# of its tree first, for the same chips (CHIPS), with a reading of the sources for each chip, as nvcc is asked by default.
set -euo pipefail
cd "$(dirname "$0")/.."
chips=${CHIPS:-80 90 100 120 121}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
torch=${QFT_TORCH_DIR:-$(.venv/bin/python -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))')}
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
host=("${CXX:-c++}" -fPIC -fopenmp)
device=("$nvcc" --expt-relaxed-constexpr -Xcompiler=-fPIC -x cu)
options=(-O3 -DNDEBUG -std=c++20 -Iinclude -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include"
         -isystem "$toolkit/include")

# measure NAME TREE NVCC'S OPTIONS...
measure() {
  local name=$1 tree=$2 total=0 file seconds command
  shift 2
  for file in $(cd "$tree" && find src \( -name '*.cu' -o -path src/cuda/ops.cpp -o -path src/cuda/optim.cpp \) | sort); do
    command=("${host[@]}")
    [[ $file != *.cu ]] || command=("${device[@]}" "$@")
    seconds=$(cd "$tree" && TIMEFORMAT='%U %S' && { time "${command[@]}" "${options[@]}" -c "$file" -o "$work/object" >"$work/log" 2>&1; } 2>&1) ||
      { cat "$work/log" >&2; return 1; }
    seconds=$(awk '{print $1 + $2}' <<<"$seconds")
    printf '%-14s %7.1f s  %s\n' "$name" "$seconds" "$file"
    total=$(awk -v a="$total" -v b="$seconds" 'BEGIN {print a + b}')
  done
  printf '%-14s %7.1f s  in all\n' "$name" "$total"
}

if [[ $# -gt 0 ]]; then
  mkdir "$work/tree"
  git archive "$1" include src | tar -x -C "$work/tree"
  each=()
  for chip in $chips; do each+=("--generate-code=arch=compute_$chip,code=[sm_$chip]"); done
  measure "${1:0:12}" "$work/tree" "${each[@]}" "--generate-code=arch=compute_${chips##* },code=[compute_${chips##* }]"
fi
measure "this tree" . "--generate-code=arch=compute_80,code=[compute_80,sm_${chips// /,sm_}]"
