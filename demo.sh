#!/usr/bin/env bash
# Installs what is missing, builds qft, fine-tunes a small model on two ranks, and compares it with its base.
# Later runs skip what is there; `./demo.sh --fresh` trains again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/common.sh

out=demo_output
tuned=$out/tuned
question="My qft job ended with exit code 75. What does that mean?"

case "${1:-}" in
  "") ;;
  --fresh) rm -rf "$out" ;;
  *) echo "usage: ./demo.sh [--fresh]" >&2; exit 2 ;;
esac

say "1/6 Install (scripts/setup.sh demo)"
scripts/setup.sh demo

say "2/6 Build (cmake --preset release)"
[[ -f build/build.ninja ]] || cmake --preset release >&2
cmake --build build -j "$(jobs)" --target qft qft-pack qft-ckpt >&2
PATH=$PWD/build/bin:$PATH
mpi_environment

say "3/6 Make the model and pack the data"
make_model
mkdir -p "$out"
if [[ ! $out/train.h5 -nt examples/data/cluster_facts.json || ! $out/train.h5 -nt examples/demo.yaml ]]; then
  qft-pack examples/demo.yaml --output "$out/train.h5"
fi
qft-pack inspect "$out/train.h5"

say "4/6 Fine-tune on two ranks"
if [[ ! -f $tuned/all_results.json ]]; then
  cores=$(nproc)
  OMP_NUM_THREADS=$((cores < 2 ? 1 : cores / 2)) mpirun -np 2 --bind-to none --oversubscribe \
    qft train examples/demo.yaml pack="$out/train.h5" output_dir="$tuned"
fi
checkpoints=("$tuned"/checkpoint-*)
qft-ckpt inspect "${checkpoints[-1]}"

say "5/6 Questions that it has not seen, about facts that it was taught in other words"
answer() {  # NAME key=value...
  echo "$1 model:"
  qft eval examples/demo.yaml output_dir="$out/eval_$1" predict_with_generate=true do_sample=false max_new_tokens=60 "${@:2}"
}
answer base
answer tuned adapter_name_or_path="$tuned"
.venv/bin/python examples/score.py examples/data/cluster_questions.json \
  "base model=$out/eval_base/generated_predictions.jsonl" "tuned model=$out/eval_tuned/generated_predictions.jsonl"

say "6/6 One of these questions"
ask() { qft generate examples/demo.yaml prompt="$question" do_sample=false max_new_tokens=80 --log-level warning "$@"; echo; }
echo "question:    $question"
printf 'base model:  ' && ask adapter_name_or_path=null
printf 'tuned model: ' && ask adapter_name_or_path="$tuned"
