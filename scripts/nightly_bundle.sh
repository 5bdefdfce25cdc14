#!/usr/bin/env bash
# The bundle on a machine with Python's pip, tar and xz, for a user without any rights: a new Debian root (debootstrap, so root's
# rights are needed to make it), in which a user unpacks the bundle under $HOME and lets pip bring LibTorch there; two ranks train, and
# one answers. Usage: scripts/nightly_bundle.sh [BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
build=${1:-build}
bare=$(mktemp -d)
cleanup() {
  for folder in proc sys dev/shm dev; do umount "$bare/$folder" 2>/dev/null || true; done
  rm -rf --one-file-system "$bare"
}
trap cleanup EXIT
chmod 755 "$bare"
debian_root "$bare" ca-certificates,python3-pip,xz-utils
for folder in proc sys dev dev/shm; do mount --bind "/$folder" "$bare/$folder"; done
cp /etc/resolv.conf "$bare/etc/"
chroot "$bare" useradd --create-home ann
home=$bare/home/ann

make_model
scripts/bundle.sh "$build" "$home/qft-bundle.tar.xz"
mkdir "$home/model" "$home/data"
cp models/smollm2/* "$home/model/"
cp examples/data/* "$home/data/"
cat >"$home/run.yaml" <<'EOF'
model_name_or_path: /home/ann/model
template: smollm2
stage: sft
do_train: true
finetuning_type: lora
dataset_dir: /home/ann/data
dataset: hpc_qa_train
cutoff_len: 256
bf16: true
max_steps: 3
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
logging_steps: 1
output_dir: /home/ann/out
EOF
chroot "$bare" chown -R ann: /home/ann
ann() {
  env -i HOME=/home/ann PATH=/home/ann/qft/bin:/usr/bin:/bin OMPI_MCA_btl_vader_single_copy_mechanism=none \
    "$(command -v setpriv)" --no-new-privs "$(command -v chroot)" --userspec=ann:ann "$bare" "$@"
}
# shellcheck disable=SC2016  # the user's shell expands what is in quotes
if ann sh -c 'id -nG | grep -qwE "sudo|root" || command -v sudo || touch /usr/local/probe'; then
  echo "the user has rights" >&2
  exit 1
fi
# The commands of docs/first_run.md, in its order.
ann tar -xJf /home/ann/qft-bundle.tar.xz -C /home/ann
(ann qft --version 2>&1 || true) | grep "no LibTorch"
# shellcheck disable=SC2016
ann sh -c 'python3 -m pip install --quiet --no-cache-dir --no-deps --target ~/qft/libtorch -r ~/qft/share/qft/python/build.txt'
ann qft --version
ann mpirun -np 2 --oversubscribe --bind-to none qft train /home/ann/run.yaml
ann qft-ckpt verify /home/ann/out/checkpoint-3
ann qft generate /home/ann/run.yaml adapter_name_or_path=/home/ann/out prompt="What is a rank?" max_new_tokens=24 do_sample=false
# shellcheck disable=SC2016
echo 'the bundle works for a user without rights, under $HOME'
