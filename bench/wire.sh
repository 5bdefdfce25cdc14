#!/usr/bin/env bash
# Sharding over a slow wire: two ranks in two network namespaces, joined by a veth pair that tc shapes. LoRA on SmolLM2,
# accumulation 8, under each strategy and order, alternating, beside what qft plan predicts from a description of the machine
# measured over the same wire; PEERS (any of ddp full_shard shard_grad_op zero2) adds PyTorch's DDP and FSDP2 over gloo, on the
# same tokens; AGAINST (a build directory) runs another build of qft in turns with this one. Needs root. Prints a Markdown table.
# STAGE=dpo takes pairs, with the model without its adapter as reference. KEYS are more keys of the run, such as
# "quantization_bit=4 quantization_method=bnb".
# Usage: bench/wire.sh [BUILD_DIR]; STAGE (sft), EACH (rows of CUTOFF tokens, or pairs, a micro-batch: 1, 2), RATE (400mbit), STEPS (4),
# ROUNDS (1), CUTOFF (512), KEYS (none), ROWS (strategy:g ...), PEERS (none; stage sft), AGAINST (none), PYTHON (.venv/bin/python)
# in the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
stage=${STAGE:-sft} rate=${RATE:-400mbit} steps=${STEPS:-4} rounds=${ROUNDS:-1} cutoff=${CUTOFF:-512}
rows=${ROWS:-ddp:1 zero2:1 zero2:8 shard_grad_op:1 shard_grad_op:8 zero3:1 zero3:8}
read -ra keys <<<"${KEYS:-}"
peers=${PEERS:-} against=${AGAINST:+$(realpath "$AGAINST")} python=${PYTHON:-$PWD/.venv/bin/python} accumulation=8
case $stage in
  sft) dataset=hpc_qa_train packing=true each=${EACH:-1} ;;
  dpo) dataset=cluster_pairs packing=false each=${EACH:-2} ;;
  *) echo "STAGE $stage: sft or dpo" >&2; exit 2 ;;
esac
[[ $stage = sft || -z $peers ]] || { echo "PEERS train stage sft only" >&2; exit 2; }
a=qft-wire-a$$ b=qft-wire-b$$
work=$(mktemp -d)
cleanup() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

ip netns add "$a"
ip netns add "$b"
ip link add qftw netns "$a" type veth peer name qftw netns "$b"
for end in "$a 1" "$b 2"; do
  read -r space host <<<"$end"
  ip -n "$space" addr add "10.9.0.$host/24" dev qftw
  ip -n "$space" link set qftw up
  ip -n "$space" link set lo up
  ip netns exec "$space" tc qdisc add dev qftw root tbf rate "$rate" burst 256kb latency 50ms
done
cat >"$work/agent" <<EOF
#!/bin/bash
shift
exec ip netns exec $b bash -c "\$*"
EOF
chmod +x "$work/agent"

cat >"$work/run.yaml" <<EOF
model_name_or_path: $PWD/models/smollm2
template: smollm2
stage: $stage
do_train: true
finetuning_type: lora
lora_rank: 8
dataset_dir: $PWD/examples/data
dataset: $dataset
packing: $packing
cutoff_len: $cutoff
per_device_train_batch_size: $each
gradient_accumulation_steps: $accumulation
num_train_epochs: 100
max_steps: $steps
learning_rate: 1.0e-4
bf16: true
logging_steps: 1
save_strategy: "no"
overwrite_output_dir: true
EOF
"$build/bin/qft-pack" "$work/run.yaml" --output "$work/train.h5" 2>/dev/null
"$build/bin/qft-pack" export "$work/train.h5" >"$work/items.jsonl"

launch() {  # COMMAND... on both hosts
  ip netns exec "$a" mpirun --allow-run-as-root --mca plm_rsh_agent "$work/agent" --mca btl tcp,self \
    --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 --host 10.9.0.1:1,10.9.0.2:1 \
    -np 2 --bind-to none -x OMP_NUM_THREADS=1 "$@" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
}

train() {  # NAME STRATEGY G BUILD
  launch "$4/bin/qft" train "$work/run.yaml" "pack=$work/train.h5" "strategy=$2" "breadth_first_micro_batches=$3" \
    "${keys[@]}" "output_dir=$work/$1"
  cat "$work/$1/trainer_log.jsonl" >>"$work/$1.log"
}

peer() {  # STRATEGY
  launch env MASTER_ADDR=10.9.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=qftw HF_HUB_OFFLINE=1 \
    "$python" "$PWD/bench/wire_peer.py" "$1" --model "$PWD/models/smollm2" --items "$work/items.jsonl" \
    --cutoff "$cutoff" --accumulation "$accumulation" --steps "$steps" --output "$work/$1-peer.log"
}

launch "$build/bin/qft" bench machine "$work/run.yaml" "pack=$work/train.h5" "${keys[@]}" --output "$work/machine.yaml" >/dev/null
for ((round = 0; round < rounds; ++round)); do
  for row in $rows; do
    IFS=: read -r strategy g <<<"$row"
    train "$strategy-$g" "$strategy" "$g" "$build"
    [[ -z $against ]] || train "$strategy-$g-other" "$strategy" "$g" "$against"
  done
  for strategy in $peers; do peer "$strategy"; done
done

for g in $(tr ' ' '\n' <<<"$rows" | cut -d: -f2 | sort -u); do
  "$build/bin/qft" plan "$work/run.yaml" "pack=$work/train.h5" --ranks 2 --machine "$work/machine.yaml" --json \
    "${keys[@]}" "breadth_first_micro_batches=$g" >"$work/plan-$g.json" 2>/dev/null
done

python3 - "$work" "$rate" <<'EOF'
import json, pathlib, statistics, sys

work, rate = pathlib.Path(sys.argv[1]), sys.argv[2]
rows, tokens = {}, []
for path in work.glob("*.log"):
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    steps = []
    for before, entry in zip(entries, entries[1:]):  # the first step of a run warms up
        if entry["current_steps"] > 1:
            tokens.append(entry["total_tokens"] - before["total_tokens"])
            steps.append({**entry["seconds"], "all": tokens[-1] / entry["throughput"]})
    rows[path.stem] = {k: statistics.median(s[k] for s in steps) for k in steps[0]}
    rows[path.stem]["memory"] = max(max(e["memory"]) for e in entries)
base = rows["ddp-1"]["all"]
predicted = {(row["strategy"], row["g"]): row["seconds"]["step"] for path in work.glob("plan-*.json")
             for row in json.loads(path.read_text())["rows"]}
print(f"wire {rate}; median of {len(steps)} steps of {min(tokens)} to {max(tokens)} tokens\n")
print("| strategy | g | s/step | of ddp | predicted | compute | waiting for gathers | waiting for reductions | peak memory |")
print("|---|---|---|---|---|---|---|---|---|")
for name, r in sorted(rows.items(), key=lambda row: row[1]["all"]):
    other = name.endswith("-other")
    strategy, g = name.removesuffix("-other").rsplit("-", 1)
    if g == "peer":
        what, parts = ["PyTorch DDP" if strategy == "ddp" else f"FSDP2 {strategy}", ""], [""] * 4
    else:
        seconds = predicted[strategy, int(g)], r["forward"] + r["backward"], r["gather"], r["reduce"]
        what, parts = [strategy + (" (other build)" if other else ""), g], [f"{s:.1f}" for s in seconds]
    cells = [*what, f"{r['all']:.1f}", f"{r['all'] / base:.2f}", *parts, f"{r['memory'] / 2**20:.0f} MiB"]
    print("| " + " | ".join(cells) + " |")
EOF
