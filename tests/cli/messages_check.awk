# SPDX-License-Identifier: MIT
# First file: docs/MESSAGES.md; second: what messages.awk prints. Prints rows' messages that nothing says
# ("nothing says: ...") and messages that no row has ("no row has: ..."). Warnings are made otherwise.
# Fragments of a pattern follow each other in what it stands for.
function fits(message, number,   i, from, found) {
    from = message
    for (i = 1; i <= n_fragments[number]; i++) {
        found = index(from, fragment[number, i])
        if (found == 0)
            return 0
        from = substr(from, found + length(fragment[number, i]))
    }
    return 1
}
FNR == 1 { n_files++ }
n_files == 1 && /^## / { section = $0 }
n_files == 1 && /^\| `/ && section != "## Warnings" {
    cell = substr($0, 3)
    sub(/ \| .*/, "", cell)
    while (match(cell, /`[^`]+`/)) {
        n_patterns++
        pattern[n_patterns] = substr(cell, RSTART + 1, RLENGTH - 2)
        cell = substr(cell, RSTART + RLENGTH)
        n = split(pattern[n_patterns], parts, /[.][.][.]/)
        for (i = 1; i <= n; i++)
            if (parts[i] != "")
                fragment[n_patterns, ++n_fragments[n_patterns]] = parts[i]
    }
    next
}
n_files == 2 {
    place = message = $0
    sub(/\t.*/, "", place)
    sub(/^[^\t]*\t/, "", message)
    has = 0
    for (p = 1; p <= n_patterns; p++)
        if (fits(message, p))
            has = said[p] = 1
    if (!has)
        print "no row has: " message " (" place ")"
}
END {
    for (p = 1; p <= n_patterns; p++)
        if (!said[p])
            print "nothing says: " pattern[p]
}
