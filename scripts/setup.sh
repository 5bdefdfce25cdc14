#!/usr/bin/env bash
# Installs what qft is built from: Debian or Ubuntu packages, and LibTorch and jieba's dictionary into .venv by uv. Safe to repeat.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--no-apt] [build|cuda|demo|test]

  build   what the programs are built from: system packages, the CPU part of LibTorch, jieba's dictionary (default)
  cuda    the same with LibTorch's CUDA libraries
  demo    build, and what makes the demo's model
  test    demo, and the full torch, transformers, peft and tokenizers that the tests compare with; packages with chat templates; TensorBoard and MLflow in
          .venv-watch; headless Chromium

  --no-apt   leave system packages alone (a cluster whose modules provide them)

Tested on Debian 12; on Ubuntu 24.04 the packages have the same names. Root or sudo is needed only where a package is missing.
TEXT
}

apt=1
level=build
uv=
venv=.venv
for argument in "$@"; do
  case "$argument" in
    build | cuda | demo | test) level=$argument ;;
    --no-apt) apt=0 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

packages=(
  ca-certificates git pkg-config
  g++ cmake ninja-build python3 python3-venv
  libopenmpi-dev openmpi-bin libhdf5-openmpi-dev
  libboost-program-options-dev libboost-log-dev libfmt-dev libyaml-cpp-dev
  nlohmann-json3-dev libsimdjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libhwy-dev
  libcurl4-openssl-dev libssl-dev
  libgtest-dev
)
faster=(ccache mold)  # used where present

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
die() { printf 'setup.sh: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

missing_packages() {
  # dpkg-query fails for names it has never seen: those are missing as well.
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p' || true)
  for package in "$@"; do
    grep -qxF "$package" <<<"$installed" || echo "$package"
  done
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -qq "$@" >&2
}

install_packages() {
  if [[ $level == test ]]; then
    packages+=(iproute2 strace)  # nodes made of namespaces; connections and writes that tests count
  fi
  command -v apt-get >/dev/null ||
    die "no apt-get here: install or load the counterparts of ${packages[*]}, then repeat with --no-apt"
  local needed wanted
  mapfile -t needed < <(missing_packages "${packages[@]}")
  mapfile -t wanted < <(missing_packages "${faster[@]}")
  [[ ${#needed[@]} -gt 0 || ${#wanted[@]} -gt 0 ]] || return 0
  if [[ $EUID -ne 0 ]] && ! command -v sudo >/dev/null; then
    [[ ${#needed[@]} -gt 0 ]] || return 0
    die "missing packages, and neither root nor sudo to install them: ${needed[*]}"
  fi
  say "installing packages: ${needed[*]} ${wanted[*]}"
  apt_install update
  [[ ${#needed[@]} -eq 0 ]] || apt_install install -y --no-install-recommends "${needed[@]}"
  for package in "${wanted[@]}"; do
    apt_install install -y --no-install-recommends "$package" || say "no package $package here: building without it"
  done
}

# Looks at report.html in a test, which is skipped without.
install_browser() {
  [[ -n $(missing_packages chromium-headless-shell) && -n $(missing_packages chromium) ]] || return 0
  apt_install install -y --no-install-recommends chromium-headless-shell ||
    apt_install install -y --no-install-recommends chromium || say "no Chromium here: a test is skipped"
}

# uv reads its own settings: hand it the package index and the certificates that pip is configured with.
share_pip_settings() {
  local certificates=/etc/ssl/certs/ca-certificates.crt index
  if [[ -r $certificates ]]; then
    export PIP_CERT=${PIP_CERT:-$certificates}
    export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}
  fi
  if [[ -z ${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-} ]]; then
    index=${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || true)}
    [[ -z $index ]] || export UV_DEFAULT_INDEX=$index
  fi
  export UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-300}
}

find_uv() {
  share_pip_settings
  for uv in "$(command -v uv || true)" "$HOME/.local/bin/uv" .cache/uv/bin/uv; do
    [[ -x $uv ]] && return
  done
  say "installing uv into .cache/uv"
  python3 -m venv .cache/uv
  .cache/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
  uv=.cache/uv/bin/uv
}

# install_python LIST [uv options]: the packages of scripts/python/LIST.txt into $venv; a stamp there says that they are in.
install_python() {
  local list=scripts/python/$1.txt stamp=$venv/.qft-$1
  shift
  ! cmp -s "$list" "$stamp" || return 0
  [[ -n $uv ]] || find_uv
  if [[ ! -x $venv/bin/python ]]; then
    say "creating $venv"
    "$uv" venv --quiet --python "$(command -v python3)" "$venv"
  fi
  say "installing $(grep -cv '^#' "$list") Python packages of $list"
  "$uv" pip install --quiet --python "$venv/bin/python" "$@" -r "$list" && cp "$list" "$stamp"
}

main() {
  [[ $apt -eq 0 ]] || install_packages
  command -v python3 >/dev/null || die "python3 (3.10 or later) is missing"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$(python3 --version) is too old for torch 2.11: put python3 >= 3.10 first in PATH"
  install_python build --no-deps
  if [[ $level == cuda ]]; then
    install_python cuda
  fi
  if [[ $level == demo || $level == test ]]; then
    install_python model --no-deps
    install_python demo
  fi
  if [[ $level == test ]]; then
    install_python test
    install_python templates --no-deps --no-build || say "no packages with chat templates here: a test does without them"
    venv=.venv-watch install_python watch
    [[ $apt -eq 0 ]] || install_browser
  fi
}

main
