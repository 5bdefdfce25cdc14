# shellcheck shell=bash
# Sourced by demo.sh and test.sh: what both need to build and to start MPI programs.

say() { printf '\n\033[1m== %s\033[0m\n' "$*" >&2; }

# Compiler processes that run at once: one per core, and 2 GB of memory for each.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 2e6)}' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

# mpirun refuses to run as root, and in a container the kernel may refuse reads of another process's memory.
mpi_environment() {
  if [[ $EUID -eq 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  export OMPI_MCA_btl_vader_single_copy_mechanism=none
}

# debian_root FOLDER [PACKAGE,...]: a new Debian root (needs root's rights) that trusts the certificates of this site.
debian_root() {
  debootstrap --variant=minbase ${2:+--include="$2"} bookworm "$1" >/dev/null
  mkdir -p "$1/usr/local/share/ca-certificates"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$1/usr/local/share/ca-certificates/" \;
  [[ ! -x $1/usr/sbin/update-ca-certificates ]] || chroot "$1" update-ca-certificates >/dev/null
  rm -f "$1"/var/cache/apt/archives/*.deb
}

# The small model of the demo and the tests.
make_model() {
  [[ -f models/smollm2/model.safetensors ]] || .venv/bin/python examples/make_smollm2.py models/smollm2 >&2
}
