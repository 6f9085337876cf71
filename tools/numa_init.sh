#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# What runs, as the first process and the only one, on the machine of tools/test_numa.sh.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
cd /
n_failed=0

# check WHAT COMMAND...: the command succeeds
check() {
    what=$1
    shift
    if "$@" >/tmp/said 2>&1; then
        echo "numa: passed: $what"
        grep -E ' MiB|pages are' /tmp/said | sed 's/^/numa:   /'
    else
        n_failed=$((n_failed + 1))
        echo "numa: FAILED: $what"
        tail -20 /tmp/said
    fi
}

# said WORDS: they are in /tmp/out
said() {
    grep -qF -- "$1" /tmp/out || {
        cat /tmp/out
        false
    }
}

# bytes POLICY NODE <numa_maps: MiB on that node of what has such a policy
bytes() {
    awk -v policy="$1" -v node="N$2=" '$2 ~ policy {
        for (i = 3; i <= NF; i++) {
            if (index($i, node) == 1) n = substr($i, length(node) + 1)
            if ($i ~ /^kernelpagesize_kB=/) { split($i, size, "="); total += n * size[2]; n = 0 }
        }
    } END { print int(total / 1024) }'
}

# on_both POLICY LEAST <numa_maps: both nodes have so many MiB of it, and neither twice the other's
on_both() {
    cat >/tmp/these
    first=$(bytes "$1" 0 </tmp/these) second=$(bytes "$1" 1 </tmp/these)
    echo "$1: $first and $second MiB"
    [ "$first" -ge "$2" ] && [ "$second" -ge "$2" ] && [ "$first" -le $((2 * second)) ] && [ "$second" -le $((2 * first)) ]
}

# at_home POLICY NODE OTHER <numa_maps: of what prefers the node nearly all is there
at_home() {
    cat >/tmp/these
    here=$(bytes "$1" "$2" </tmp/these) there=$(bytes "$1" "$3" </tmp/these)
    echo "$1: $here MiB on node $2, $there on node $3"
    [ "$here" -ge 8 ] && [ $((20 * there)) -le "$here" ]
}

# threads_stay: of the process seen three threads stay, with both nodes; the caller's node has one less
threads_stay() {
    cat /tmp/cpus
    first=$(grep -c '^0-1$' /tmp/cpus) second=$(grep -c '^2-3$' /tmp/cpus)
    [ "$first" -ge 1 ] && [ "$second" -ge 1 ] && [ $((first + second)) -eq 3 ]
}

# see OPTIONS...: where memory and threads of a run are: /tmp/maps, /tmp/cpus
see() {
    moeflux run random --raw -p "Once upon a time" -n 100000 --ctx 4096 --temp 0 --device cpu "$@" >/tmp/text 2>/tmp/err &
    pid=$!
    # until tokens come: all is loaded then
    until [ "$(wc -c </tmp/text)" -gt 4 ]; do
        [ -d "/proc/$pid" ] || break
        sleep 1
    done
    cat "/proc/$pid/numa_maps" >/tmp/maps
    sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/"$pid"/task/*/status >/tmp/cpus
    kill "$pid"
    wait "$pid"
}

# same MODEL OPTIONS...: the text that the other machine gave
same() {
    model=$1
    shift
    moeflux run "$model" --raw -p "Once upon a time" -n 12 --temp 0 --device cpu --cpu-tier avx2 --quiet "$@" >/tmp/text &&
        cmp /tmp/text "/expected/$model"
}

# nodes_of COMMAND...: what the doctor says of nodes
nodes_of() {
    "$@" moeflux doctor --no-measure 2>&1 | grep ' nodes ' >/tmp/out
    true
}

echo
echo "numa: nodes with memory $(cat /sys/devices/system/node/has_memory), huge pages $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
check "unit tests of nodes" test_numa
check "unit tests of threads" test_threads

nodes_of env
check "the doctor sees two nodes" said "2, weights and threads shared out among them"
nodes_of numactl --interleave=all
check "a policy of the user's own holds" said "memory as the policy of this process says"
nodes_of test_numa --forbid
check "the doctor says when calls are forbidden" said "memory cannot be placed"
nodes_of taskset 3
check "one node's CPUs are one node" [ ! -s /tmp/out ]

check "the demo's text" same demo
check "the demo's text, three threads" same demo --threads 3
check "the demo's text, one thread" same demo --threads 1
check "the demo's text without nodes" same demo --numa off
check "the demo's text where calls are forbidden" test_numa --forbid \
    sh -c 'moeflux run demo --raw -p "Once upon a time" -n 12 --temp 0 --cpu-tier avx2 --quiet | cmp - /expected/demo'
check "the random model's text" same random
check "the random model's text, few slots" same random --expert-cache 0

check "slots go back to the system and are taken again" test_ram_auto
moeflux bench demo --ram 84M --prompt-tokens 8 --gen-tokens 4 --repeat 1 --warmup 0 --measure-ms 1 --device cpu --json >/tmp/out 2>&1
peak=$(sed -n 's/.*"peak_rss_bytes": \([0-9]*\).*/\1/p' /tmp/out)
check "the promise of --ram 84M is kept: ${peak:-nothing} bytes" [ "${peak:-99999999999}" -le $((84 << 20)) ]

see
check "dense rows at home on node 0" at_home '^prefer[^:]*:0$' 0 1 </tmp/maps
check "dense rows at home on node 1" at_home '^prefer[^:]*:1$' 1 0 </tmp/maps
check "dense rows on both" on_both '^prefer' 8 </tmp/maps
check "slots on both" on_both '^interleave' 20 </tmp/maps
check "threads stay at home" threads_stay
see --numa off
check "no policy without nodes" [ "$(grep -cE '(prefer|interleave)' /tmp/maps)" -eq 0 ]
check "no thread is kept without nodes" [ "$(grep -vc '^0-3$' /tmp/cpus)" -eq 0 ]

moeflux bench random --prompt-tokens 4 --gen-tokens 2 --repeat 1 --warmup 0 --measure-ms 20 --device cpu >/tmp/out 2>&1
check "the bench says where memory is" said "memory on node 1 of 2"
grep 'memory on node\|sequential reads' /tmp/out | sed 's/^/numa: bench: /'

[ $n_failed -eq 0 ] && echo "numa: all passed"
poweroff -f
