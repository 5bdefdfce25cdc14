#!/usr/bin/env bash
# The host code for aarch64: cross-compiled in a Debian root of its own (debootstrap, so root's rights are needed), with LibTorch's wheel
# for aarch64; unit tests without LibTorch run by qemu. Usage: scripts/nightly_aarch64.sh [FOLDER, .cache/aarch64: kept for the next
# night]; TARGETS (of ninja, all), TESTS (a pattern of ctest) and JOBS (2) in the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
source_dir=$PWD
mkdir -p "${1:-.cache/aarch64}"
folder=$(realpath "${1:-.cache/aarch64}")
root=$folder/root
tests=${TESTS:-^(core|config|io|tokenizer|cuda)_test$}

tools=(g++-aarch64-linux-gnu cmake ninja-build pkg-config qemu-user-static ccache python3)
libraries=(libopenmpi-dev libhdf5-openmpi-dev libboost-program-options-dev libboost-log-dev libfmt-dev libyaml-cpp-dev libsimdjson-dev
           libpcre2-dev libutf8proc-dev libxxhash-dev libhwy-dev libcurl4-openssl-dev libssl-dev libgtest-dev)

inside() {
  env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive CCACHE_DIR=/ccache \
    PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig "$(command -v chroot)" "$root" "$@"
}

if [[ ! -e $folder/made ]]; then
  say "a Debian root with a cross compiler and the libraries for arm64"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >/dev/null
  inside dpkg --add-architecture arm64
  inside apt-get -qq update
  inside apt-get -qq install -y --no-install-recommends "${tools[@]}" nlohmann-json3-dev "${libraries[@]/%/:arm64}"
  mkdir -p "$root"/{src,build,ccache,torch}
  cat >"$root/usr/local/bin/h5pcc" <<'SCRIPT'
#!/bin/sh
# In place of Debian's, which asks MPI's wrapper, a program for arm64.
[ "$1" != -showconfig ] || exec cat /usr/lib/aarch64-linux-gnu/hdf5/openmpi/libhdf5.settings
show=; [ "$1" != -show ] || { show=echo; shift; }
[ "$1" != -shlib ] || shift
exec $show aarch64-linux-gnu-gcc "$@" $(pkg-config --cflags --libs hdf5-openmpi)
SCRIPT
  chmod +x "$root/usr/local/bin/h5pcc"
  touch "$folder/made"
fi
if ! cmp -s scripts/python/build.txt "$folder/build.txt"; then
  say "LibTorch for aarch64"
  "$(command -v uv || echo .cache/uv/bin/uv)" pip install --quiet --target "$root/torch" --python-platform aarch64-manylinux_2_28 --python-version 3.11 --no-deps \
    -r scripts/python/build.txt
  cp scripts/python/build.txt "$folder/build.txt"
fi

# Mounts of this command alone.
if [[ ${QFT_MOUNTED:-} != yes ]]; then
  exec env QFT_MOUNTED=yes unshare --mount "scripts/$(basename "$0")" "$folder"
fi
mount --bind "$source_dir" "$root/src"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
say "cross-compiling: ${TARGETS:-all}"
inside cmake -G Ninja -S /src -B /build --toolchain /src/cmake/aarch64-linux-gnu.cmake -DQFT_CUDA=OFF -DQFT_TORCH_DIR=/torch/torch >&2
# shellcheck disable=SC2086
inside ninja -C /build -j "${JOBS:-2}" ${TARGETS:-all} >&2
say "tests under qemu: $tests"
inside ctest --test-dir /build --output-on-failure --no-tests=error -j "${JOBS:-2}" -R "$tests"
echo "aarch64: compiled, and the tests pass"
