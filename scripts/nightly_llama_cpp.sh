#!/usr/bin/env bash
# Exports to GGUF by llama.cpp itself: models that learned one answer are asked as a chat, answer it and stop. Installs
# llama-cpp-python, which compiles llama.cpp for some minutes, into .venv-llama.
# usage: scripts/nightly_llama_cpp.sh [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(realpath "${1:-build}")

uv=$(command -v uv || echo .cache/uv/bin/uv)
if [[ ! -x .venv-llama/bin/python ]] || ! .venv-llama/bin/python -c 'import llama_cpp' 2>/dev/null; then
  "$uv" venv --quiet --allow-existing --python "$(command -v python3)" .venv-llama
  # Plain instructions only: the venv may be used on another node than the one that made it.
  CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF" \
    "$uv" pip install --quiet --python .venv-llama/bin/python "llama-cpp-python==0.3.36"
fi

exports=$(mktemp -d)
trap 'rm -rf "$exports"' EXIT
.venv/bin/python tests/interop/answers.py --build "$build" --keep "$exports"
.venv-llama/bin/python tests/interop/llama_cpp_answers.py "$exports"
