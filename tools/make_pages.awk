# SPDX-License-Identifier: MIT
# Reads the commands' help, each behind a line "@command NAME SUMMARY"; writes what form says into out:
# man (moeflux-NAME.1), bash (moeflux.bash), zsh (_moeflux) or fish (moeflux.fish).
function take_option(line,   rest, at) {
    n_options++
    rest = substr(line, 3)
    of[n_options] = command
    short[n_options] = argument[n_options] = ""
    if (match(rest, /^-[a-zA-Z], /)) {
        short[n_options] = substr(rest, 2, 1)
        rest = substr(rest, 5)
    }
    match(rest, /^--[a-z0-9-]+/)
    long[n_options] = substr(rest, 3, RLENGTH - 2)
    rest = substr(rest, RLENGTH + 1)
    if (match(rest, /^\[?=[^ ]+/) || match(rest, /^ ([A-Z][][A-Z=:|]*|[a-z]+[|][a-z]+)( |$)/)) {
        argument[n_options] = substr(rest, 1, RLENGTH)
        gsub(/ /, "", argument[n_options])
        rest = substr(rest, RLENGTH + 1)
    }
    sub(/^ +/, "", rest)
    text[n_options] = rest
    spec[n_options] = substr(line, 3, length(line) - 2 - length(rest))
    sub(/ +$/, "", spec[n_options])
}
/^@command / {
    command = $2
    commands[++n_commands] = command
    sub(/^@command [a-z]+ /, "")
    summary[command] = $0
    heading = ""
    is_in_option = n_usage = 0
    next
}
/^Usage: / || (n_usage && /^       [a-z]/) {
    sub(/^Usage: |^ +/, "")
    usage[command, ++n_usage] = $0
    n_usages[command] = n_usage
    next
}
/^  (-[a-zA-Z], )?--[a-z]/ {
    n_usage = 0
    take_option($0)
    before[n_options] = heading
    heading = ""
    is_in_option = 1
    next
}
is_in_option && /^            +[^ ]/ {
    sub(/^ +/, "")
    text[n_options] = text[n_options] " " $0
    next
}
/^[A-Z].*:$/ || /^[A-Z][A-Za-z ]*\(.*\):$/ {
    heading = substr($0, 1, length($0) - 1)
    is_in_option = 0
    next
}
{
    n_usage = 0
    if (is_in_option)
        after[command] = after[command] $0 "\n"
    else
        about[command] = about[command] $0 "\n"
}

# ---- manual pages
function roff(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    if (s ~ /^[.']/)
        s = "\\&" s
    return s
}
function roff_lines(s,   lines, n, i, all) {
    n = split(s, lines, "\n")
    for (i = 1; i <= n; i++)
        all = all (lines[i] == "" ? (i < n && i > 1 ? ".PP\n" : "") : roff(lines[i]) "\n")
    return all
}
function write_man(c,   file, i) {
    file = out "/moeflux-" c ".1"
    printf ".TH MOEFLUX\\-%s 1 \"\" \"moeflux %s\" \"User Commands\"\n", toupper(c), version >file
    printf ".SH NAME\nmoeflux\\-%s \\- %s\n.SH SYNOPSIS\n", c, roff(summary[c]) >file
    for (i = 1; i <= n_usages[c]; i++)
        printf "%s.B %s\n", (i > 1 ? ".br\n" : ""), roff(usage[c, i]) >file
    printf ".SH DESCRIPTION\n%s.SH OPTIONS\n", roff_lines(about[c]) >file
    for (i = 1; i <= n_options; i++)
        if (of[i] == c)
            printf "%s.TP\n.B %s\n%s\n", (before[i] != "" ? ".SS " roff(before[i]) "\n" : ""), roff(spec[i]), roff(text[i]) >file
    if (after[c] ~ /[^\n]/)
        printf ".SH NOTES\n%s", roff_lines(after[c]) >file
    printf ".SH SEE ALSO\n.BR moeflux (1),\nwhich says more of the options and has examples.\n" >file
    close(file)
}

# ---- completions
# What the option takes: words, "path", "any", or "" for nothing that follows it.
function takes(i,   list) {
    if (argument[i] == "" || argument[i] ~ /^\[?=/)
        return ""
    if (argument[i] == "on|off")
        return "on off"
    if (argument[i] ~ /FILE|DIR|^PATH$|^TRACE$|^SCHEMA$/)
        return "path"
    if (argument[i] ~ /^(KIND|TYPE|TIER|POLICY|WHEN)$/ &&
        match(text[i], /([a-z][a-z0-9-]*( \([^)]*\))?, )*[a-z][a-z0-9-]*( \([^)]*\))? or [a-z][a-z0-9-]*/)) {
        list = substr(text[i], RSTART, RLENGTH)
        gsub(/ \([^)]*\)|,/, "", list)
        sub(/ or /, " ", list)
        return list
    }
    return "any"
}
function one_line(s) {
    sub(/ \(default.*/, "", s)
    gsub(/['\\`"$\[\]:]/, "", s)
    return length(s) > 70 ? substr(s, 1, 67) "..." : s
}
function write_bash(   file, c, i, k, all, kind, names) {
    file = out "/moeflux.bash"
    for (c = 1; c <= n_commands; c++)
        all = all " " commands[c]
    print "# Completion of moeflux for bash. Generated.\n_moeflux()\n{" >file
    print "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options=" >file
    print "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ \"$before\" = help ]; }; then" >file
    print "        mapfile -t COMPREPLY < <(compgen -W \"" substr(all, 2) " help version\" -- \"$word\")\n        return\n    fi" >file
    print "    case ${COMP_WORDS[1]} in" >file
    for (c = 1; c <= n_commands; c++) {
        all = ""
        printf "    %s)\n        case $before in\n", commands[c] >file
        for (i = 1; i <= n_options; i++) {
            if (of[i] != commands[c])
                continue
            all = all " --" long[i]
            kind = takes(i)
            names = "--" long[i] (short[i] != "" ? " | -" short[i] : "")
            if (kind == "path")
                printf "        %s)\n            mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n            return\n            ;;\n", names >file
            else if (kind == "any")
                printf "        %s) return ;;\n", names >file
            else if (kind != "")
                printf "        %s)\n            mapfile -t COMPREPLY < <(compgen -W \"%s\" -- \"$word\")\n            return\n            ;;\n", names, kind >file
        }
        printf "        esac\n        options=\"%s\"\n        ;;\n", substr(all, 2) >file
    }
    print "    esac\n    case $word in" >file
    print "    -*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;" >file
    print "    *) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n    esac\n}" >file
    print "complete -o filenames -F _moeflux moeflux" >file
    close(file)
}
function write_zsh(   file, c, i, kind, tail) {
    file = out "/_moeflux"
    print "#compdef moeflux\n# Completion of moeflux for zsh. Generated.\n_moeflux() {\n    if (( CURRENT == 2 )); then\n        local -a all=(" >file
    for (c = 1; c <= n_commands; c++)
        printf "            '%s:%s'\n", commands[c], one_line(summary[commands[c]]) >file
    print "        )\n        _describe command all\n        return\n    fi\n    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in" >file
    for (c = 1; c <= n_commands; c++) {
        printf "    %s)\n        _arguments \\\n", commands[c] >file
        for (i = 1; i <= n_options; i++) {
            if (of[i] != commands[c])
                continue
            kind = takes(i)
            tail = kind == "" ? "" : ":" tolower(argument[i]) ":"
            gsub(/[|=\[\]]/, " ", tail)
            tail = tail (kind == "path" ? "_files" : kind == "any" || kind == "" ? "" : "(" kind ")")
            if (short[i] != "")
                printf "            '(-%s --%s)'{-%s,--%s}'[%s]%s' \\\n", short[i], long[i], short[i], long[i], one_line(text[i]), tail >file
            else
                printf "            '*--%s[%s]%s' \\\n", long[i], one_line(text[i]), tail >file
        }
        print "            '*:file:_files'\n        ;;" >file
    }
    print "    esac\n}\n_moeflux \"$@\"" >file
    close(file)
}
function write_fish(   file, c, i, kind) {
    file = out "/moeflux.fish"
    print "# Completion of moeflux for fish. Generated." >file
    for (c = 1; c <= n_commands; c++)
        printf "complete -c moeflux -n __fish_use_subcommand -f -a %s -d '%s'\n", commands[c], one_line(summary[commands[c]]) >file
    for (i = 1; i <= n_options; i++) {
        kind = takes(i)
        printf "complete -c moeflux -n '__fish_seen_subcommand_from %s' -l %s%s%s -d '%s'\n", of[i], long[i],
            (short[i] != "" ? " -s " short[i] : ""),
            (kind == "" ? "" : kind == "path" ? " -r -F" : kind == "any" ? " -x" : " -x -a '" kind "'"), one_line(text[i]) >file
    }
    close(file)
}
END {
    if (n_commands == 0 || n_options == 0)
        exit 1
    if (form == "man")
        for (k = 1; k <= n_commands; k++)
            write_man(commands[k])
    else if (form == "bash")
        write_bash()
    else if (form == "zsh")
        write_zsh()
    else
        write_fish()
}
