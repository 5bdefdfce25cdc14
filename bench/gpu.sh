#!/usr/bin/env bash
# qft on one GPU: the self-test, at whose failure it ends; then against HF + PEFT on random models of the given shapes, then every
# strategy and offload with one rank, and two ranks on the one GPU where NCCL allows it (2.30 or later). The machine needs an NVIDIA
# driver, LibTorch and Python with transformers and peft; all else is in the bundle that scripts/bundle.sh makes of a CUDA build.
# Usage: bench/gpu.sh BUNDLE.tar.xz OUTPUT_DIR; SHAPES ("0.5b 1.5b 7b moe hybrid"), PYTHON (.venv/bin/python), TOKENIZER (models/smollm2)
# and QFT_LIBTORCH in the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=$(realpath "$1") output=$(realpath -m "$2")
shapes=${SHAPES:-0.5b 1.5b 7b moe hybrid} python=${PYTHON:-.venv/bin/python} tokenizer=${TOKENIZER:-models/smollm2}
if [[ $EUID -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
mkdir -p "$output"
tar -xJf "$bundle" -C "$output"
qft=$output/qft
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv | tee "$output/machine.txt"

# Nothing below says anything where the device does not compute what it should.
"$qft/bin/qft" selftest --device cuda | tee "$output/selftest.txt"

for shape in $shapes; do
  [[ -f $output/$shape/config.json ]] || "$python" bench/random_model.py "$shape" "$output/$shape" --tokenizer "$tokenizer" --device cuda
  cases="lora-bf16-2048 lora-bf16-2048-checkpointing" experts=
  [[ $shape == 7b ]] || cases+=" full-pure_bf16-2048"
  [[ $shape != moe ]] || experts="--experts grouped_mm"
  # shellcheck disable=SC2086
  "$python" bench/train.py --build "$qft" --model "$output/$shape" --device cuda --rounds 2 --steps 12 $experts --cases $cases \
    --json "$output/$shape.json" | tee "$output/$shape.md"
done

shape=${shapes%% *}
cat >"$output/strategies.yaml" <<EOF
model_name_or_path: $output/$shape
template: smollm2
stage: sft
do_train: true
finetuning_type: full
dataset_dir: $PWD/examples/data
dataset: hpc_qa_train
packing: true
cutoff_len: 1024
bf16: true
max_steps: 4
gradient_accumulation_steps: 4
learning_rate: 1.0e-5
logging_steps: 1
save_strategy: "no"
overwrite_output_dir: true
output_dir: $output/run
EOF
run() {  # RANKS NAME KEY=VALUE...
  local ranks=$1 name=$2
  shift 2
  "$qft/bin/mpirun" -np "$ranks" --oversubscribe --bind-to none "$qft/bin/qft" train "$output/strategies.yaml" "$@" \
    2>"$output/$name.err" || { echo "FAILED $name: $(tail -n 3 "$output/$name.err")"; return; }
  tail -n 1 "$output/run/trainer_log.jsonl" | sed "s/^/$name /"
}
for strategy in ddp zero1 zero2 shard_grad_op zero3; do run 1 "1-$strategy" strategy="$strategy"; done
for offload in offload_optimizer offload_param offload_activations; do run 1 "1-zero3-$offload" strategy=zero3 "$offload=cpu"; done

# Layers as CUDA graphs where a step is short. Padding changes the order of sums, so losses agree to bf16's rounding.
for graphs in false true; do
  rm -f "$output/run/trainer_log.jsonl"
  run 1 "1-cuda_graphs-$graphs" cuda_graphs="$graphs" finetuning_type=lora learning_rate=1.0e-4 packing=false cutoff_len=256 max_steps=40
  cp "$output/run/trainer_log.jsonl" "$output/cuda_graphs-$graphs.jsonl" || echo "FAILED 1-cuda_graphs-$graphs: no log"
done
"$python" - "$output/cuda_graphs-false.jsonl" "$output/cuda_graphs-true.jsonl" <<'EOF' || echo "FAILED cuda_graphs: other losses than without"
import json, sys
without, graphs = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
worst = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(without, graphs, strict=True))
speed = [sum(e["throughput"] for e in log[len(log) // 2:]) for log in (without, graphs)]
print(f"cuda_graphs: losses within {worst:.1e} of those without, throughput {speed[1] / speed[0]:.2f} of it")
sys.exit(worst > 0.01)
EOF

export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=4
for strategy in ddp zero2 zero3; do run 2 "2-$strategy" strategy="$strategy"; done
