# SPDX-License-Identifier: MIT
# A table in Markdown of results.tsv of compare.sh. Columns: GiB of memory, tokens/s of moeflux, of
# llama.cpp, bytes a second of the drive; and where a GPU was used its name and the command.
# Usage: awk -f table.awk results.tsv
BEGIN { FS = "\t" }
/^# / { fact[substr($1, 3)] = $2; next }
/^ram_gib/ || $1 == "" { next }
{
    n++
    ram[n] = $1; ours[n] = $2; theirs[n] = $3; drive[n] = $4; gpu[n] = $5; command[n] = $6
}
function speed(v) { return v == "" ? "-" : sprintf(v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v) }
function options(i,   text) {
    text = command[i]
    sub(/^moeflux bench MODEL /, "", text)
    return text != "" ? text : sprintf("--ram %dM", ram[i] * 0.97 * 1024)
}
END {
    if (n == 0)
        exit 1
    print "| memory | drive, GB/s | GPU | moeflux, tokens/s | llama.cpp, tokens/s | `moeflux bench MODEL` ... |"
    print "|---|---|---|---|---|---|"
    for (i = 1; i <= n; i++)
        printf "| %s GiB | %s | %s | %s | %s | `%s` |\n", ram[i], drive[i] == "" ? "-" : sprintf("%.2f", drive[i] / 1e9),
            gpu[i] == "" ? "none" : gpu[i], speed(ours[i]), speed(theirs[i]),
            options(i)
    if (fact["machine"] != "")
        printf "\n%s; %s. moeflux %s beside %s, %s, each alone in a control group of so much memory (`bench/compare/compare.sh`).\n",
            fact["model"], fact["machine"], fact["moeflux"], fact["llama.cpp"], fact["date"]
    if (fact["note"] != "")
        print fact["note"]
}
