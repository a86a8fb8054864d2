# Sourced by scripts/test, scripts/demo and scripts/bench: finds or installs the
# tools, makes the virtual environment and builds.
#
# Afterwards BIN is the directory of the environment's programs. Nothing that
# is there already is installed again, so a second run costs about a second.
# choose_pair takes another CPython and torch than the usual ones.

JOBS=${JOBS:-$(nproc)}
PYTHON_VERSION=3.11
TORCH_VERSION=2.13.0
ENVIRONMENT=.venv
BUILD=build/release
CLANG_FORMAT_VERSION=23.1.5
CMAKE_ARGUMENTS=()
BIN=

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    echo "needs root or sudo: $*" >&2
    return 1
  fi
}

# find_python VERSION: an interpreter of that version with headers and a shared
# library (the tests embed it): $PYTHON, on the PATH, or from pyenv.
find_python() {
  local candidate
  for candidate in "${PYTHON:-}" "python$1" python3 "/usr/bin/python$1" \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python3; do
    [ -n "$candidate" ] || continue
    "$candidate" - "$1" 2> /dev/null << 'END' && return 0
import os, sys, sysconfig
get = sysconfig.get_config_var
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
    sys.exit(1)
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit(1)
names = [get("LDLIBRARY"), get("INSTSONAME")]
folders = [get("LIBDIR"), get("LIBPL"), os.path.join(get("LIBDIR"), get("MULTIARCH") or "")]
if not any(n and ".so" in n and os.path.exists(os.path.join(f, n)) for n in names for f in folders):
    sys.exit(1)
print(os.path.realpath(sys.executable) if sys.prefix == sys.base_prefix else sys.executable)
END
  done
  return 1
}

# choose_pair PYTHON TORCH: minor versions ("3.12", "2.11"). Environment and build
# folder are the pair's own, unless it is the usual one.
choose_pair() {
  case "$1" in 3.11 | 3.12 | 3.13) ;; *)
    echo "CPython 3.11, 3.12 or 3.13, not $1" >&2; return 1 ;;
  esac
  case "$2" in 2.11 | 2.12 | 2.13) ;; *)
    echo "torch 2.11, 2.12 or 2.13, not $2" >&2; return 1 ;;
  esac
  [ "$1" = "$PYTHON_VERSION" ] && [ "$2" = "${TORCH_VERSION%.*}" ] && return 0
  PYTHON_VERSION=$1
  case "$2" in
    2.11) TORCH_VERSION=2.11.0 ;;
    2.12) TORCH_VERSION=2.12.1 ;;
  esac
  ENVIRONMENT=.venv-$1-torch$2
  BUILD=build/py${1/./}-torch${2/./}
}

# Debian packages for the programs and headers that are missing.
install_packages() {
  local missing=()
  command -v g++ > /dev/null || missing+=(g++)
  command -v git > /dev/null || missing+=(git)
  command -v ninja > /dev/null || missing+=(ninja-build)
  command -v ccache > /dev/null || missing+=(ccache)
  cmake --version 2> /dev/null | grep -qE '(3\.(2[5-9]|[3-9][0-9])|[4-9]\.[0-9]+)\.' ||
    missing+=(cmake)
  [ -e /usr/include/gtest/gtest.h ] || [ -e /usr/local/include/gtest/gtest.h ] ||
    missing+=(libgtest-dev)
  [ -e /usr/include/asmjit/asmjit.h ] || missing+=(libasmjit-dev)
  if ! find_python "$PYTHON_VERSION" > /dev/null && [ "$PYTHON_VERSION" = 3.11 ]; then
    missing+=(python3 python3-dev python3-venv)
  fi
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "installing ${missing[*]}"
  as_root apt-get update -q &&
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -qy --no-install-recommends "${missing[@]}"
}

has_torch() {
  "$1" -c "import importlib.metadata as m, sys
sys.exit(m.version('torch').split('+')[0] != '$TORCH_VERSION')" 2> /dev/null
}

is_version() {
  "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2> /dev/null
}

# The environment: the active one if it is of the right Python (and, where another
# pair was chosen, has its torch), or $ENVIRONMENT (which sees the packages of its
# Python only when the right torch is among them, so none is fetched twice).
make_environment() {
  local python
  BIN=$PWD/$ENVIRONMENT/bin
  if [ -n "${VIRTUAL_ENV:-}" ] && is_version "$VIRTUAL_ENV/bin/python" "$PYTHON_VERSION"; then
    if [ "$ENVIRONMENT" = .venv ] || has_torch "$VIRTUAL_ENV/bin/python"; then
      BIN=$VIRTUAL_ENV/bin
    fi
  fi
  if [ ! -x "$BIN/python" ]; then
    python=$(find_python "$PYTHON_VERSION") || {
      echo "no usable Python $PYTHON_VERSION" >&2
      return 1
    }
    local visible=()
    has_torch "$python" && visible=(--system-site-packages)
    "$python" -m venv "${visible[@]}" "$ENVIRONMENT" || {
      rm -rf "$ENVIRONMENT"
      # Debian splits ensurepip off into a package of its own.
      as_root apt-get install -qy python3-venv &&
        "$python" -m venv "${visible[@]}" "$ENVIRONMENT"
    } || return 1
  fi
}

# Python packages that are missing; torch first, so that nothing else chooses
# its version.
install_python_packages() {
  if ! has_torch "$BIN/python"; then
    "$BIN/python" -m pip install -q "torch==$TORCH_VERSION" || return 1
  fi
  local missing
  missing=$("$BIN/python" - "$CLANG_FORMAT_VERSION" << 'END'
import importlib.metadata as metadata
import os
import sys

for name in ("numpy", "pytest", "pytest-xdist", "hypothesis", "expecttest", "rich", "jinja2", "ruff", "mypy",
             "accelerate", "lightning", "transformers", "nvidia-cuda-nvrtc-cu12",
             "scikit-build-core", "clang-format==" + sys.argv[1]):
    distribution, _, wanted = name.partition("==")
    try:
        version = metadata.version(distribution)
        if not wanted or version == wanted:
            continue
    except metadata.PackageNotFoundError:
        pass
    print(name)
END
  ) || return 1
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    "$BIN/python" -m pip install -q $missing "torch==$TORCH_VERSION" || return 1
  fi
}

# Programs that an environment sees from its base are not in its bin folder.
link_programs() {
  local program found
  for program in clang-format ruff mypy; do
    [ -x "$BIN/$program" ] && continue
    found=$("$BIN/python" - "$program" << 'END'
import os, sys, sysconfig
for base in (sysconfig.get_path("scripts"), os.path.join(sys.base_prefix, "bin")):
    path = os.path.join(base, sys.argv[1])
    if os.path.exists(path):
        print(path)
        break
END
    )
    [ -n "$found" ] && ln -sf "$found" "$BIN/$program"
  done
}

prepare_environment() {
  install_packages && make_environment && install_python_packages && link_programs
}

# The compiler of CUDA C++ that was installed, which needs no GPU; empty: none.
nvrtc_path() {
  "$BIN/python" - << 'END'
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
for root in spec.submodule_search_locations if spec else []:
    for path in sorted(pathlib.Path(root).glob("*/lib/libnvrtc.so.*")):
        print(path)
        raise SystemExit
END
}

# build_release [TARGET ...]: the targets of the release build, or all of it: the
# extension (framejit_C), in place, and the GoogleTests.
build_release() {
  mkdir -p build/logs
  cmake --preset release -B "$BUILD" "${CMAKE_ARGUMENTS[@]}" \
    -DPython3_EXECUTABLE="$BIN/python" \
    -DPython3_ROOT_DIR="$("$BIN/python" -c 'import sys; print(sys.base_prefix)')" \
    > build/logs/configure.log || { cat build/logs/configure.log; return 1; }
  cmake --build "$BUILD" -j "$JOBS" ${1:+--target "$@"}
}
