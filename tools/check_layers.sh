#!/bin/sh
# SPDX-License-Identifier: MIT
# Holds every #include line against the table of layers (docs/ARCHITECTURE.md).
# Usage: check_layers.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

files=$(find src cli server hub examples -name '*.[ch]' -type f 2>/dev/null | sort)
[ -n "$files" ] || {
    echo "layers: no sources found" >&2
    exit 1
}

# shellcheck disable=SC2086 # a list of words
awk '
BEGIN {
    allowed["base"] = "base"
    allowed["io"] = "base io"
    allowed["state"] = "base io state"
    allowed["format"] = "base format third_party"
    allowed["kernels"] = "base kernels"
    allowed["text"] = "base format text"
    allowed["backend"] = "base kernels backend"
    allowed["experts"] = "base io format backend experts"
    allowed["routing"] = "base io state backend experts routing"
    allowed["model"] = "base format backend experts model"
    allowed["quantise"] = "base quantise"
    allowed["convert"] = "base format experts routing model quantise convert"
    allowed["forward"] = "base io backend experts model forward"
    allowed["session"] = "base io state backend experts routing model forward session"
    allowed["sampling"] = "base format sampling"
    allowed["grammar"] = "base format text grammar"
}
function complain(why) {
    printf "%s:%d: %s: %s\n", FILENAME, FNR, why, $0
    n_bad++
}
function layer_of(path,   part) {
    split(path, part, "/")
    return part[1]
}
FNR == 1 {
    n_files++
    in_library = FILENAME ~ /^src\//
    own = FILENAME
    sub(/^src\//, "", own)
    own_layer = layer_of(own)
    own_folder = own
    sub(/\/[^\/]*$/, "", own_folder)
    if (in_library && !(own_layer in allowed)) {
        printf "%s: layer %s is not in the table\n", FILENAME, own_layer
        n_bad++
    }
}
/^[ \t]*#[ \t]*include/ {
    n_includes++
    if (match($0, /<[^>]*>/)) {
        name = substr($0, RSTART + 1, RLENGTH - 2)
        if (name !~ /^moeflux\//)
            next
        if (system("test -f include/" name) != 0)
            complain("unknown public header")
        # A program includes all of it. So does nothing that every kernel is compiled with: the parts
        # that are used.
        if (!in_library && name != "moeflux/moeflux.h")
            complain("a program includes <moeflux/moeflux.h>")
        if (own_layer ~ /^(base|kernels|backend)/ && FILENAME ~ /\.h$/ && name == "moeflux/moeflux.h")
            complain("only the parts of it that are used")
        next
    }
    if (!match($0, /"[^"]*"/)) {
        complain("cannot read this include")
        next
    }
    name = substr($0, RSTART + 1, RLENGTH - 2)
    if (!in_library) {
        # Programs see the public header and their own folder.
        if (name ~ /\//)
            complain("a program may include <moeflux/moeflux.h> and its own headers only")
        folder = layer_of(FILENAME)
        if (folder == "cli" || folder == "server" || folder == "hub") {
            is_own = system("test -f " folder "/" name) == 0
            # The program knows one header of the server and two of the hub, they none of the program.
            if (!is_own && !(folder == "cli" && name ~ /^(serve|hub|hub_pull)\.h$/) &&
                name !~ /^yyjson(_prefix)?\.h$/)
                complain(folder " may not include this")
        }
        next
    }
    if (name ~ /(^|\/)third_party\//)
        target = "third_party"
    else if (name ~ /^\.\.?\//) {
        complain("includes are written from src/")
        next
    } else if (name !~ /\//)
        next # a header beside the file
    else
        target = layer_of(name)
    if (index(" " allowed[own_layer] " ", " " target " ") == 0)
        complain("layer " own_layer " may not include " target)
    # A backend is private to its folder and to the table of backends.
    if (match(name, /^backend\/[^\/]+\//)) {
        folder = substr(name, 1, RLENGTH - 1)
        if (own_folder != folder && index(own_folder, folder "/") != 1 && own_folder != "backend")
            complain("only " folder " itself and src/backend may include this")
    }
}
/(^|[^A-Za-z0-9_])(vk[A-Z]|Vk[A-Z]|VK_|cu[A-Z][a-z]+[A-Z(]|cuda[A-Z])/ {
    if (FILENAME !~ /^src\/backend\/(vulkan|cuda|metal)\//)
        complain("GPU interfaces belong below src/backend/<gpu>")
}
END {
    if (n_bad > 0) {
        printf "layers: %d violations\n", n_bad
        exit 1
    }
    printf "layers: %d files, %d includes, all allowed\n", n_files, n_includes
}
' $files
