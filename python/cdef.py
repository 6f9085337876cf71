# SPDX-License-Identifier: MIT
"""Writes moeflux/_cdef.py, cffi's description of libmoeflux, from the public headers alone.

    python3 cdef.py INCLUDE_DIR OUT.py

ABI mode: nothing is compiled, so one wheel serves every Python. The headers are the one place where
the declarations stand; `--layout` prints a C program that holds cffi's sizes and offsets against the
compiler's.
"""
import re
import sys
from pathlib import Path

from cffi import FFI

CONSTANTS = ("MF_STAGES", "MF_STEP_NO_LOGITS", "MF_LEFT_OUT_MOST")


def read(directory: Path, name: str, seen: set[str]) -> str:
    """The header behind those that it includes, each once."""
    if name in seen:
        return ""
    seen.add(name)
    text = (directory / name).read_text()
    parts = [read(directory, n, seen) for n in re.findall(r"#include <(moeflux/[a-z]+\.h)>", text)]
    return "".join(parts) + text


def declarations(directory: Path) -> str:
    """What cffi's parser takes: no comments, no preprocessor, no functions with a body."""
    text = read(directory, "moeflux/moeflux.h", set())
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    constants = "".join(
        f"#define {name} {match.group(1)}\n"
        for name in CONSTANTS
        if (match := re.search(rf"#define {name} (\d+)u?\n", text))
    )
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
    text = re.sub(r"^[ ]*#.*\n", "", text, flags=re.M)
    text = re.sub(r"(MF_MUST_CHECK\s+)?static inline[^{]*\{.*?\n\}\n", "", text, flags=re.S)
    text = re.sub(r"\b(MF_API|MF_MUST_CHECK)\b", "", text)
    return constants + text


def build(directory: Path) -> FFI:
    ffi = FFI()
    ffi.cdef(declarations(directory))
    ffi.set_source("moeflux._cdef", None)
    return ffi


def layout(ffi: FFI) -> str:
    """A C program that prints what differs between cffi's layout and the compiler's."""
    lines = ["#include <moeflux/moeflux.h>", "#include <stddef.h>", "#include <stdio.h>"]
    lines.append("static int differs(const char *what, size_t is, size_t should)")
    lines.append('{ return is == should ? 0 : printf("%s: %zu, not %zu\\n", what, is, should) > 0; }')
    lines.append("int main(void)\n{\n    int n = 0;")
    for name in ffi.list_types()[0]:
        kind = ffi.typeof(name)
        if kind.kind != "struct" or kind.fields is None:
            continue
        lines.append(f'    n += differs("{name}", {ffi.sizeof(kind)}, sizeof({name}));')
        for field, value in kind.fields:
            place = f"offsetof({name}, {field})"
            lines.append(f'    n += differs("{name}.{field}", {value.offset}, {place});')
    lines.append("    return n != 0;\n}\n")
    return "\n".join(lines)


def main() -> int:
    arguments = [a for a in sys.argv[1:] if a != "--layout"]
    if "--layout" in sys.argv and len(arguments) == 1:
        print(layout(build(Path(arguments[0]))))
        return 0
    if len(arguments) != 2:
        print("usage: cdef.py INCLUDE_DIR OUT.py | cdef.py --layout INCLUDE_DIR", file=sys.stderr)
        return 2
    build(Path(arguments[0])).emit_python_code(arguments[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
