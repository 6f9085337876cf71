# SPDX-License-Identifier: MIT
# A control group whose limit is lowered and raised while answers are made: no kill, the same text,
# the cache small in between and large again. Where no such group can be made, there is nothing to see.
. ./lib_server.sh
[ -z "${SANITIZE:-}" ] || skip "a sanitizer's own memory is not the engine's"

group=
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -z "$group" ] && mkdir "$root/moeflux-test-$$" 2>/dev/null && group=$root/moeflux-test-$$
done
[ -n "$group" ] || skip "no control group can be made here"
if [ -e "$group/memory.limit_in_bytes" ]; then
    limit=memory.limit_in_bytes
elif [ -e "$group/memory.high" ]; then
    limit=memory.high
else
    rmdir "$group"
    skip "no control group of memory can be made here"
fi
remove_all() {
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null
    wait 2>/dev/null
    wait_for rmdir "$group"
    rm -rf "$scratch"
}
trap remove_all EXIT
limited_to() {
    last="a limit of $1"
    echo "$1" >"$group/$limit" || skip "the limit of a control group cannot be set"
}

# the server joins the group before it is what it is
cat >"$scratch/joined" <<EOF
#!/bin/sh
echo \$\$ >"$group/cgroup.procs" && exec "$MOEFLUX" "\$@"
EOF
chmod +x "$scratch/joined"
MOEFLUX=$scratch/joined

story='{"prompt":"Once upon a time","max_tokens":600,"temperature":0,"ignore_eos":true}'
# told FILE: the text of one more answer
told() {
    post /v1/completions "$story"
    expect_status 200
    value text >"$1"
}
slots_are() {
    [ "$(stat expert_slots)" "$1" "$2" ]
}
# told_until LIMIT OPERATOR N: the limit changes during an answer; the slots follow within some
# answers (what would stay empty is not taken), all with the same text
told_until() {
    curl -s -m 900 "$url/v1/completions" --data-binary "$story" >"$scratch/during" &
    client=$!
    limited_to "$1"
    wait "$client"
    value_in "$scratch/during" text >"$scratch/text"
    for _ in $(seq 100); do
        n_checks=$((n_checks + 1))
        cmp -s "$scratch/text" "$scratch/expected" || fail "another text under a limit of $1"
        slots_are "$2" "$3" && break
        told "$scratch/text"
    done
    expect_true slots_are "$2" "$3"
}

limited_to 2000M
start_server "$demo" --ctx 1024 --threads 1
n_all=$(stat expert_slots)
told "$scratch/expected"
expect_equal "$(stat expert_slots)" "$n_all"
told_until 100M -lt $((n_all / 8))
told_until 2000M -gt $((n_all / 2))
stop_server
expect_empty "$server_err"
finish
