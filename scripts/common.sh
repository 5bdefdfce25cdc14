# shellcheck shell=bash
# Sourced by demo.sh, test.sh and nightly tests: what they need to build and to start MPI programs.

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

failed=()

# system_test NAME [ARGUMENT...]: a test of whole programs with those of $build; a failure is kept until all_passed.
system_test() {
  local what="$*${QFT_DEVICE:+ (QFT_DEVICE=$QFT_DEVICE)}"
  say "$what"
  HF_HUB_OFFLINE=1 PYTHONPATH=$PWD/tests/interop .venv/bin/python "tests/system/$1.py" --build "$build" "${@:2}" || failed+=("$what")
}

# on_sim COMMAND...: on the simulated device of $build.
on_sim() {
  QFT_DEVICE=sim QFT_BACKEND_PATH=$build/tests OMP_WAIT_POLICY=passive "$@"
}

all_passed() {
  [[ ${#failed[@]} -eq 0 ]] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
  echo "passed: ${tests[*]}"
}
