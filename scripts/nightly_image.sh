#!/usr/bin/env bash
# containers/Dockerfile, built and run: two ranks train in the image, then its pods do what k8s says. Without a registry: the base is a
# new Debian root (debootstrap; root's rights, buildah). containers/qft.def by what spython makes of it: Debian has no apptainer.
# Usage: scripts/nightly_image.sh [FOLDER, .cache/image: the base stays there]; JOBS in the environment, ccache's cache is used.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
for program in buildah debootstrap; do
  command -v $program >/dev/null || { echo "no $program: apt-get install buildah debootstrap" >&2; exit 77; }
done
mkdir -p "${1:-.cache/image}"
folder=$(realpath "${1:-.cache/image}")
work=$(mktemp -d)
# The simplest storage and isolation work in containers and virtual machines too.
buildah() { command buildah --storage-driver vfs --root "$folder/storage" --runroot "$folder/run" "$@"; }
cleanup() {
  { buildah rm --all; buildah rmi --prune; } >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

base=localhost/debian:bookworm-slim
if ! buildah inspect --type image $base >/dev/null 2>&1; then
  say "the base: debootstrap"
  debian_root "$work/base"
  container=$(buildah from scratch)
  buildah copy -q "$container" "$work/base" / >/dev/null
  buildah commit -q "$container" $base >/dev/null
  rm -rf "$work/base"
fi

say "containers/Dockerfile"
cache=(--volume "$(ccache --get-config cache_dir):/ccache")
[[ -d ${cache[1]%:/ccache} ]] || cache=()
began=$SECONDS
buildah bud -q --isolation chroot --ignorefile containers/Dockerfile.dockerignore -f containers/Dockerfile -t localhost/qft "${cache[@]}" \
  --build-arg BUILD_BASE=$base --build-arg RUN_BASE=$base --build-arg CUDA=OFF --build-arg JOBS="${JOBS:-}" . >"$work/log" 2>&1 ||
  { tail -n 40 "$work/log" >&2; exit 1; }
echo "built in $((SECONDS - began)) s"

make_model
mkdir -p "$work/volume"
cp -r models examples "$work/volume/"

# try IMAGE [COMMAND...]: what holds for any image: programs, training, no compiler; then the command.
try() {
  local container name=$1
  shift
  container=$(buildah from "localhost/$name")
  inside() {
    buildah run --isolation chroot --volume "$work/volume:/work" --workingdir /work --env OMPI_ALLOW_RUN_AS_ROOT=1 \
      --env OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 --env OMPI_MCA_btl_vader_single_copy_mechanism=none "$container" -- "$@"
  }
  say "in the image $name"
  inside qft --version
  for tool in gcc g++ cc c++ cpp clang nvcc ld cmake ninja make python3; do
    ! inside sh -c "command -v $tool" || { echo "$name: $tool is in the image" >&2; exit 1; }
  done
  inside sh -c 'HF_ENDPOINT=http://127.0.0.1:9 qft fetch some/model --to /tmp/model 2>&1 | tee /dev/stderr | grep -q 127.0.0.1' ||
    { echo "$name: qft fetch does not get as far as the network" >&2; exit 1; }
  inside mpirun --quiet -np 2 --oversubscribe --bind-to none qft train examples/demo.yaml max_steps=2 logging_steps=1 eval_strategy=no \
    per_device_train_batch_size=1 cutoff_len=128 output_dir="/work/$name"
  inside qft-ckpt verify "/work/$name/checkpoint-2"
  root=$(buildah mount "$container")
  echo "$name: $(du -sm "$root" | cut -f 1) MB, without a compiler"
  [[ $# -eq 0 ]] || inside "$@"
}

try qft
say "the pods of k8s, from this image"
PYTHONPATH=tests/interop HF_HUB_OFFLINE=1 .venv/bin/python tests/system/pods.py "$root"

say "containers/qft.def, as a Dockerfile"
"$(command -v uv || echo .cache/uv/bin/uv)" venv -q "$work/venv"
"$(command -v uv || echo .cache/uv/bin/uv)" pip install -q --python "$work/venv/bin/python" spython==0.3.14
mkdir "$work/def"
cp -r "$root/opt/qft" "$work/def/qft-bundle"
"$work/venv/bin/spython" recipe --parser singularity --writer docker containers/qft.def "$work/def/Dockerfile"
# %test becomes /tests.sh and a HEALTHCHECK that no builder takes: it is run below.
sed -i "s|^FROM .*|FROM $base|; /^HEALTHCHECK /d" "$work/def/Dockerfile"
buildah bud -q --isolation chroot -t localhost/qft-def "$work/def" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }
try qft-def bash /tests.sh
echo "the images work"
