"""Compile libtidegate_cpu.so with the compiler of the `ziglang` package, the same on every machine and in the image.

Usage: python3 build.py FILE
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = "x86_64-linux-gnu.2.28"
"""Older than any distribution with Python 3.11, and no processor's features but each file's own."""
FLAGS = "-std=c++20 -O3 -fPIC -fno-exceptions -fno-rtti -ffp-contract=off -fno-sanitize=undefined -fvisibility=hidden"
WARNINGS = "-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror"
PROCESSORS = {"kernels_avx2": "x86_64_v3", "kernels_avx512": "x86_64_v4+avx512vnni"}


def main(out: Path) -> int:
    """Compile each source, then link; the library appears whole or not at all."""
    folder = Path(__file__).parent
    compiler = [sys.executable, "-m", "ziglang", "c++", "-target", TARGET]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        # The compiler keeps its own parts beside the result, so that a read-only home is no trouble.
        environment = {"ZIG_GLOBAL_CACHE_DIR": f"{scratch}/zig", "ZIG_LOCAL_CACHE_DIR": f"{scratch}/zig"} | os.environ
        running = []
        for source in sorted(folder.glob("*.cpp")):
            processor = PROCESSORS.get(source.stem, "x86_64")
            command = [*compiler, f"-mcpu={processor}", *FLAGS.split(), *WARNINGS.split()]
            command += ["-c", str(source), "-o", f"{scratch}/{source.stem}.o"]
            running.append(subprocess.Popen(command, env=environment))
        codes = [process.wait() for process in running]  # all of them, or the rest would lose their folder
        if any(codes):
            return 1
        objects = sorted(str(path) for path in Path(scratch).glob("*.o"))
        library = f"{scratch}/{out.name}"
        link = [*compiler, "-shared", "-nostdlib++", "-s", "-o", library, *objects, "-lpthread", "-lm"]
        if subprocess.run(link, env=environment, check=False).returncode:
            return 1
        Path(library).replace(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
