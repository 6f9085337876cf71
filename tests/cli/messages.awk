# SPDX-License-Identifier: MIT
# Reads C sources; prints, a line each, what the functions that make errors are given to say: "..."
# stands for what varies. "FILE:LINE<tab>MESSAGE".
BEGIN {
    at["mf_fail"] = 3
    at["mf_fail_os"] = at["mf_fail_at"] = 4
    at["mf_fail_memory"] = 3
    at["mf_cli_error"] = 1
    at["mf_cli_usage_error"] = 2
    at["mf_hub_fail"] = at["mf_hub_fail_os"] = 3
    at["mf_j_fail"] = at["mf_rules_fail"] = at["mf_schema_fail"] = 3
    at["mf_hparam_fail"] = 5
    at["refuse"] = 4 # of server/recall_file.c
    at["fail"] = 2   # of server/listen.c
    at["snprintf"] = 3 # into an mf_error
    # what these put in front
    prefix["mf_j_fail"] = "...: line ...: "
    prefix["mf_schema_fail"] = "schema: #...: "
    prefix["mf_hparam_fail"] = "...: field ... "
    prefix["fail"] = "...: "
}
# The literals of an argument: those that follow each other are one, of a choice each is one.
function say(argument, name, place,   n, i, c, text, inside, word, rest) {
    n = length(argument)
    text = ""
    for (i = 1; i <= n + 1; i++) {
        c = i > n ? "?" : substr(argument, i, 1)
        if (inside) {
            if (c == "\\") {
                text = text substr(argument, i + 1, 1)
                i++
            } else if (c == "\"") {
                inside = 0
            } else {
                text = text c
            }
        } else if (c == "\"") {
            inside = 1
        } else if (c == "?" || c == ":") {
            if (text ~ /[A-Za-z]/)
                print_message(text, name, place)
            text = ""
        } else if (match(substr(argument, i), /^[A-Za-z_][A-Za-z0-9_]*/)) {
            word = substr(argument, i, RLENGTH)
            i += RLENGTH - 1
            text = text (word ~ /^PRI/ ? "x" : "%s")
        }
    }
}
function print_message(text, name, place) {
    gsub(/%[-+ #0-9.*]*(hh|h|ll|l|z|j|t)?[a-zA-Z]/, "...", text)
    gsub(/%%/, "%", text)
    if (name == "mf_fail_memory")
        text = "out of memory: ... bytes for " text
    if (text ~ /[a-z][a-z]/)
        print place "\t" prefix[name] text
}
# The arguments that begin at position i of all, behind the bracket, up to the one asked for.
function argument_of(which,   depth, inside, c, begin, number, i) {
    depth = 1
    number = 1
    begin = 1
    for (i = 1; depth > 0 && i <= length(tail); i++) {
        c = substr(tail, i, 1)
        if (inside) {
            if (c == "\\")
                i++
            else if (c == "\"")
                inside = 0
        } else if (c == "\"") {
            inside = 1
        } else if (c == "(") {
            depth++
        } else if (c == ")") {
            depth--
        }
        if (!inside && ((c == "," && depth == 1) || depth == 0)) {
            if (number == which)
                return substr(tail, begin, i - begin)
            number++
            begin = i + 1
        }
    }
    return ""
}
function flush_file(   name, line) {
    line = 1
    while (match(all, /(^|[^A-Za-z_0-9"])(mf_fail|mf_fail_os|mf_fail_at|mf_fail_memory|mf_cli_error|mf_cli_usage_error|mf_hub_fail|mf_hub_fail_os|mf_j_fail|mf_rules_fail|mf_schema_fail|mf_hparam_fail|refuse|fail|snprintf)\(/)) {
        head = substr(all, 1, RSTART + RLENGTH - 1)
        name = substr(all, RSTART, RLENGTH - 1)
        gsub(/[^a-z_]/, "", name)
        line += gsub(/\n/, "", head)
        all = substr(all, RSTART + RLENGTH)
        tail = substr(all, 1, 1500)
        if (name == "snprintf" && argument_of(1) !~ /error->message$/ || name == "refuse" && file !~ /recall_file/ || name == "fail" && file !~ /server\/listen/)
            continue
        say(argument_of(at[name]), name, file ":" line)
    }
    all = ""
}
FNR == 1 {
    flush_file()
    file = FILENAME
}
{ all = all $0 "\n" }
END { flush_file() }
