#!/usr/bin/env bash
# What one GPU must show, by priority, within a time: the self-test; LoRA on Qwen3-8B's shape by two builds; its kernels; LibTorch's
# products and attention for that shape; a base in nf4; decoding; smaller shapes; fp8. A part that fails or runs out of its time leaves
# the others alone; parts for which no time is left are named. The machine needs an NVIDIA driver and Python with torch and
# transformers.
# Usage: scripts/gpu_day.sh FOLDER OUTPUT
#   FOLDER  new/ and base/: bundles (scripts/bundle.sh --without-arrow), or bundles.tar.xz with both; tokenizer/; kernel_times.so
#           (bench/kernel_times.cpp), without which the kernels are not listed; trials/: programs that check and time new kernels;
#           trial.tar.xz: files of a third build that replace new's
#   OUTPUT  results.md, and logs.tar.xz with every part's output
# BUDGET (540: seconds), PYTHON (python3), DEVICE (cuda; cpu: to try the script), PARTS (all), MODELS (made: a folder with 8b, 8b-4,
# 0.5b and 1.5b) in the environment.
set -uo pipefail
start=$SECONDS
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(realpath "$1") output=$(realpath -m "$2")
budget=${BUDGET:-540} python=${PYTHON:-python3} device=${DEVICE:-cuda} parts=${PARTS:-}
if [[ $EUID -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d /tmp/gpu_day.XXXXXX)
models=${MODELS:-$work}
# Models lie in memory where there is room for them.
[[ -n ${MODELS:-} || $(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1) -lt 50000000 ]] || models=$(mktemp -d /dev/shm/gpu_day.XXXXXX)
logs=$work/logs
mkdir -p "$output" "$logs"
results=$output/results.md
: >"$results"

finish() {
  tar -C "$work" -cJf "$output/logs.tar.xz" logs
  [[ -n ${MODELS:-} ]] || rm -rf "$models"
  rm -rf "$work"
}
trap finish EXIT
left() { echo $((budget - SECONDS + start)); }
say() { echo "$*" | tee -a "$results"; }

# part NAME SECONDS COMMAND...: runs it for at most that long; the lines that belong to tables or begin with a number are results.
part() {
  local name=$1 limit=$2 code began=$SECONDS
  shift 2
  [[ -z $parts || " $parts " == *" $name "* ]] || return 0
  if (($(left) < 15)); then say "## $name: no time left"; return 0; fi
  ((limit <= $(left) - 8)) || limit=$(($(left) - 8))
  timeout --kill-after=5 "$limit" "$@" >"$logs/$name.log" 2>"$logs/$name.err"
  code=$?
  say "## $name: $((SECONDS - began)) s of at most $limit, exit code $code"
  grep -E '^(\||##|[0-9]+ at a time|qft |selftest|.*(FAILED|passed|differ))' "$logs/$name.log" | cut -c1-600 | head -n 400 | tee -a "$results"
  ((code == 0)) || tail -n 12 "$logs/$name.err" | cut -c1-400 | tee -a "$results"
  return 0
}
model() {  # NAME SHAPE [ARGUMENTS]
  local name=$1 shape=$2
  shift 2
  "$python" "$root/bench/random_model.py" "$shape" "$models/$name" --tokenizer "$folder/tokenizer" --device "$device" "$@" \
    >"$logs/model-$name.log" 2>&1 && touch "$models/$name.done"
}
compare() {  # BUILD MODEL STEPS CASES...: new and that build, in turns
  local other=$1 name=$2 steps=$3
  shift 3
  "$python" "$root/bench/train.py" --build "$work/new" --against "$work/$other" --device "$device" --model "$models/$name" --rounds 1 \
    --steps "$steps" --json "$logs/compare.jsonl" --cases "$@"
}
kernels() {
  "$python" "$root/bench/kernel_times.py" --library "$folder/kernel_times.so" --builds "$work"/{new,base,trial}/ --model "$models/8b-4" \
    --keep "$logs/kernels"
}
decode() { "$python" "$root/bench/decode.py" --build "$work/new" --model "$models/8b" --device "$device" --tokens "$tokens" --rounds 1 "$@"; }
parts_of_a_layer() { "$python" "$root/bench/gpu_parts.py" "$@"; }
export -f compare kernels decode parts_of_a_layer

if [[ -d $folder/new ]]; then cp -r "$folder/new" "$folder/base" "$work/"; else tar -xJf "$folder/bundles.tar.xz" -C "$work"; fi
[[ -d $work/base ]] || cp -r "$work/new" "$work/base"
if [[ -e $folder/trial.tar.xz ]]; then
  cp -r "$work/new" "$work/trial"
  tar -xJf "$folder/trial.tar.xz" -C "$work/trial"
fi
if [[ $device == cuda ]]; then
  say "$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader)"
  steps=12 tokens=128 one=lora-bf16-2048 four=lora-bf16-4x2048 eight=lora-bf16-8x2048 full=full-pure_bf16-2048 nf4=lora-bf16-2048-nf4
else
  steps=3 tokens=8 one=lora-bf16-512 four=lora-bf16-512-dropout eight=lora-bf16-512-checkpointing full=full-pure_bf16-512 nf4=lora-bf16-512-nf4
fi
say "$("$work/new/bin/qft" --version 2>&1 | tr '\n' ' ' | cut -c1-300)"

export python root folder work models device logs tokens one

# Models are made while the self-test runs: it is not timed.
([[ -n ${MODELS:-} ]] || { model 8b 8b; model 8b-4 8b --layers 4; model 0.5b 0.5b; model 1.5b 1.5b; }) &
makers=$!
part selftest 130 "$work/new/bin/qft" selftest --device "$device"
while kill -0 "$makers" 2>/dev/null && (($(left) > 60)) && [[ ! -e $models/1.5b.done ]]; do sleep 0.5; done
say "models: $(cd "$models" && echo ./*.done) after $((SECONDS - start)) s"

part lora-8b 170 bash -c "compare base 8b $steps $one $four"
if [[ -d $work/trial ]]; then
  part selftest-trial 60 "$work/trial/bin/qft" selftest --device "$device" --only 'products|steps'
  part lora-8b-trial 100 bash -c "compare trial 8b $steps $one $four"
fi
part kernels 80 bash -c kernels
part narrow 60 bash -c 'parts_of_a_layer narrow --json "$logs/narrow.json"'
for trial in "$folder"/trials/*; do
  [[ ! -x $trial ]] || part "trial-$(basename "$trial")" 25 "$trial"
done
part attention 40 bash -c 'parts_of_a_layer attention --json "$logs/attention.json"'
part products 25 bash -c 'parts_of_a_layer products ceilings --json "$logs/products.json"'
part decode-1 70 bash -c decode
part decode-32 70 bash -c 'decode --batch 32'
part lora-0.5b 60 bash -c "compare base 0.5b $steps $one $eight"
part full-1.5b 50 bash -c "compare base 1.5b $steps $full"
part nf4-8b 90 bash -c "compare base 8b 8 $nf4"
part fp8 20 bash -c 'parts_of_a_layer fp8 --json "$logs/fp8.json"'
part lora-8b-peer 90 bash -c '"$python" "$root/bench/train.py" --build "$work/new" --device "$device" --model "$models/8b" --rounds 1 --steps 8 --cases "$one"'
say "done after $((SECONDS - start)) s"
