#!/usr/bin/env bash
# The bundle on a machine with LibTorch and nothing else: a new Debian root (debootstrap, so root's rights are needed) in which
# two ranks train, and one answers. Usage: scripts/nightly_bundle.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
bare=$(mktemp -d)
cleanup() {
  for folder in proc sys dev/shm dev opt/torch opt/nvidia; do umount "$bare/$folder" 2>/dev/null || true; done
  rm -rf --one-file-system "$bare"
}
trap cleanup EXIT
debootstrap --variant=minbase bookworm "$bare" >/dev/null
mkdir -p "$bare"/{proc,sys,dev,opt/torch,opt/nvidia,root/model,root/data}
packages=$(.venv/bin/python -c 'import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec("torch").origin)))')
mount --bind /proc "$bare/proc"
mount --bind /sys "$bare/sys"
mount --bind /dev "$bare/dev"
mount --bind /dev/shm "$bare/dev/shm"
mount --bind "$packages/torch" "$bare/opt/torch"
[[ ! -d $packages/nvidia ]] || mount --bind "$packages/nvidia" "$bare/opt/nvidia"

scripts/bundle.sh "$build" "$bare/root/qft.tar.xz"
tar -xJf "$bare/root/qft.tar.xz" -C "$bare/opt"
cp models/smollm2/* "$bare/root/model/"
cp examples/data/* "$bare/root/data/"
cat >"$bare/root/run.yaml" <<'EOF'
model_name_or_path: /root/model
template: smollm2
stage: sft
do_train: true
finetuning_type: lora
dataset_dir: /root/data
dataset: hpc_qa_train
cutoff_len: 256
bf16: true
max_steps: 3
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
logging_steps: 1
output_dir: /root/out
EOF
inside() {
  env -i HOME=/root PATH=/opt/qft/bin:/usr/bin:/bin QFT_LIBTORCH=/opt/torch OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "$(command -v chroot)" "$bare" "$@"
}
inside mpirun -np 2 --oversubscribe --bind-to none qft train /root/run.yaml
inside qft-ckpt verify /root/out/checkpoint-3
inside qft generate /root/run.yaml adapter_name_or_path=/root/out prompt="What is a rank?" max_new_tokens=24 do_sample=false
echo "the bundle works in a bare root"
