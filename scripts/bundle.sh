#!/usr/bin/env bash
# One relocatable tarball with qft's programs, mpirun and every library they need but LibTorch, CUDA's and the C library: for
# machines that have LibTorch and nothing else. Between nodes it talks TCP; fabrics want the cluster's own MPI.
# Usage: scripts/bundle.sh [--libtorch] [--without-arrow] [BUILD_DIR] [OUTPUT]; --libtorch puts LibTorch's libraries in too (for
# containers), --without-arrow leaves out Arrow, two thirds of a bundle, and with it Parquet and Arrow files; an OUTPUT that does not
# end in .tar.xz is a folder.
set -euo pipefail
libtorch=no arrow=yes
while [[ ${1:-} == --* ]]; do
  case $1 in
    --libtorch) libtorch=yes ;;
    --without-arrow) arrow=no ;;
    *) echo "bundle.sh: '$1' is neither --libtorch nor --without-arrow" >&2; exit 2 ;;
  esac
  shift
done
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}") output=$(realpath -m "${2:-qft-bundle.tar.xz}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/qft libs=$root/lib

cmake --install "$build" --prefix "$root" --strip >/dev/null
mkdir -p "$root/libexec" "$libs"
mv "$root"/bin/* "$root/libexec/"
mv "$root/libexec/qft-run" "$root/bin/"  # a script, which finds mpirun in the PATH
[[ $arrow == yes ]] || rm -f "$root/lib/qft/libqft_arrow.so"

# Open MPI: launcher, daemon, plugins for one node and for TCP. Its folders keep their place relative to the prefix.
field() { ompi_info --path "$1" --parsable | sed -n "s/^path:$1://p"; }
prefix=$(field prefix) plugins=$(field pkglibdir) data=$(field pkgdatadir)
cp -L "$(command -v orterun)" "$(command -v orted)" "$root/libexec/"
mkdir -p "$root${plugins#"$prefix"}" "$root${data#"$prefix"}" "$root/etc"
cp -r "$data/." "$root${data#"$prefix"}/"
for plugin in "$plugins"/mca_*.so; do
  case $plugin in
    *ucx* | *ofi* | *openib* | *psm* | *monitoring* | *memheap* | *scoll* | *spml* | *sshmem* | *flux* | *gridengine*) ;;
    *) cp "$plugin" "$root${plugins#"$prefix"}/" ;;
  esac
done
# The closure of shared libraries. LibTorch's, CUDA's (NCCL's too, wherever this machine has it) and the C library's are the target
# machine's.
torch=$(sed -n 's/^QFT_TORCH_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
closure=$({ find "$root" -type f \( -name '*.so' -o -path '*/libexec/*' \) -print0 | xargs -0 -n1 ldd 2>/dev/null || true; } |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u)
grep -Ev "/(libc|libm|libdl|librt|libpthread|libutil|libresolv|ld-linux[^/]*|libnccl|libcuda|libcudart)\.so|/nvidia/|/cuda[^/]*/|^$torch/lib/" <<<"$closure" |
  while read -r library; do cp -Lf "$library" "$libs/"; done
find "$libs" "$root${plugins#"$prefix"}" -name '*.so*' -exec strip --strip-unneeded {} + 2>/dev/null || true

cat >"$root/libexec/environment" <<EOF
# Sourced by the programs in bin/. LibTorch is found in \$QFT_LIBTORCH, else in the bundle's folder libtorch, else as Python's torch.
if [ -z "\$QFT_LIBTORCH" ]; then
  if [ -d "\$here/libtorch/torch" ]; then QFT_LIBTORCH=\$here/libtorch/torch  # pip install --target
  elif [ -d "\$here/libtorch" ]; then QFT_LIBTORCH=\$here/libtorch
  else QFT_LIBTORCH=\$(python3 -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))' 2>/dev/null)
  fi
fi
if [ ! -e "\$QFT_LIBTORCH/lib/libtorch_cpu.so" ]; then
  echo "qft: no LibTorch in '\$QFT_LIBTORCH': set QFT_LIBTORCH to its folder (the one with lib/libtorch_cpu.so), or
python3 -m pip install --no-deps --target \$here/libtorch -r \$here/share/qft/python/build.txt" >&2
  exit 2
fi
export QFT_LIBTORCH QFT_BUNDLE="\$here"
export LD_LIBRARY_PATH="\$here/lib:\$QFT_LIBTORCH/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
# pip's LibTorch has CUDA's run-time and NCCL in folders of their own; the site's, if named above, come first.
for folder in "\$QFT_LIBTORCH"/../nvidia/*/lib; do
  [ -d "\$folder" ] && LD_LIBRARY_PATH="\$LD_LIBRARY_PATH:\$folder"
done
export OPAL_PREFIX="\$here" OPAL_SYSCONFDIR="\$here/etc"
# PMIx's optional plugins stay behind; those of another PMIx, which the machine may have, do not fit.
export PMIX_MCA_pcompress_base_silence_warning=1 PMIX_MCA_mca_base_component_disable_dlopen=1
export OMPI_MCA_orte_launch_agent="\$here/bin/orted" OMPI_MCA_plm_rsh_no_tree_spawn=1
# Without a way to other nodes, mpirun must not look for one.
command -v ssh >/dev/null || command -v rsh >/dev/null || command -v srun >/dev/null || export OMPI_MCA_plm=isolated
EOF
# What has the environment already: a program that mpirun starts. On other nodes orted has OPAL_PREFIX from it, and nothing else.
for program in qft qft-pack qft-ckpt mpirun:orterun orted; do
  cat >"$root/bin/${program%:*}" <<EOF
#!/bin/sh
here=\$(cd "\$(dirname "\$(readlink -f "\$0")")/.." && pwd)
[ "\$QFT_BUNDLE" = "\$here" ] || . "\$here/libexec/environment"
exec "\$here/libexec/${program#*:}" "\$@"
EOF
  chmod +x "$root/bin/${program%:*}"
done

# LibTorch, where the programs look first: without Python's part; without a back end for CUDA only what the programs link.
if [[ $libtorch == yes ]]; then
  mkdir -p "$root/libtorch/lib"
  if [[ -e $root/lib/qft/libqft_cuda.so ]]; then
    find "$torch/lib" -maxdepth 1 -name '*.so*' ! -name '*python*' -exec cp -L {} "$root/libtorch/lib/" \;
    for folder in "$torch"/../nvidia/*/; do
      [[ ! -d $folder/lib ]] || { mkdir -p "$root/nvidia/$(basename "$folder")"; cp -rL "$folder/lib" "$root/nvidia/$(basename "$folder")/"; }
    done
  else
    while read -r library; do
      case $library in
        "$torch"/lib/*) cp -L "$library" "$root/libtorch/lib/" ;;
        */nvidia/*/lib/*) install -D "$library" "$root/nvidia/${library##*/nvidia/}" ;;
      esac
    done <<<"$closure"
  fi
fi

case $output in
  *.tar.xz) tar -C "$stage" -cJf "$output" qft ;;
  *) mkdir -p "$output" && cp -rT "$root" "$output" ;;
esac
echo "$output: $(du -sb "$output" | awk '{printf "%.1f MB", $1 / 1e6}')"
