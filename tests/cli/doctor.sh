# SPDX-License-Identifier: MIT
# moeflux doctor: what it finds here, what it finds wrong, and a report that names nobody's files.
. ./lib.sh
model=$SOURCE/tests/model/data/mlx_4bit

run doctor --no-measure
[ "$code" -eq 0 ] || expect_code 1
for name in system cpu load memory "control group" io_uring gpu models; do
    n_checks=$((n_checks + 1))
    grep -Eq "^(ok|note|bad) +$name " "$out" || fail "nothing about $name"
done
expect_true [ "$(awk 'length > 340' "$out" | wc -l)" -eq 0 ]
expect_empty "$err"
expect_true [ "$(grep -c 'of CPU a GiB' "$out")" -eq 0 ] # not measured, not said

# what stands in the way is graded so, and ends it with 1
bad() {
    grep -c '^bad' "$out"
}
run doctor --no-measure
n_bad=$(bad)
run doctor "$scratch/nothing" --no-measure
expect_code 1
expect_true [ "$(bad)" -eq $((n_bad + 1)) ]
expect_true grep -q "$scratch/nothing: cannot open" "$out"
(ulimit -n 64 && "$MOEFLUX" doctor --no-measure) >"$out"
expect_true grep -q '^note *open files *64$' "$out"
if [ -z "${SANITIZE:-}" ] && (ulimit -v 40000000) 2>/dev/null; then # sanitizers want all addresses
    (ulimit -v 40000000 && "$MOEFLUX" doctor --no-measure) >"$out"
    expect_true grep -q '^note *address space *38.15 GiB$' "$out"
fi
# tiers, as version has them
tiers=$("$MOEFLUX" version | sed -n 's/^tiers *//p')
expect_true [ -n "$tiers" ]
case $tiers in
*avx2*)
    run doctor --no-measure --json
    expect_true grep -qF "\"effect\": \"of $tiers the last is used" "$out"
    ;;
esac

# measured, with a model, as JSON: what settings give, each in both ways
run doctor "$model" --json
expect_lines "$out" 1
expect_glob "$out" '{"version": "*", "commit": "*", "compiler": "*", "commands": "*", "findings": [[]{"grade": "*"name": "bandwidth"*}[]], "measured": {"read_bytes": *}, "model": {"family": "qwen3_5_moe"*"verdict": "*"}}'
expect_true grep -q '"name": "drive", "value": "[0-9.]* .iB/s in reads of' "$out"
# effect_of NAME TEXT: where the finding is good, it has such an effect
effect_of() {
    last="the effect of $1: $(grep -o "\"name\": \"$1\"[^}]*" "$out")"
    n_checks=$((n_checks + 1))
    ! grep -q "\"grade\": \"ok\", \"name\": \"$1\"" "$out" ||
        grep -Eq "\"name\": \"$1\", \"value\": \"[^\"]*\", \"advice\": \"[^\"]*\", \"effect\": \"$2" "$out" ||
        fail "what it gives is not said"
}
figure='[0-9.]+ [KMGT]iB/s'
effect_of "huge pages" "memory is read at $figure with them, at $figure without"
effect_of "direct I/O" "$figure for [0-9]+ ms of CPU a GiB; through the page cache $figure for [0-9]+ ms"
if grep -q '"io_uring": {"bytes_per_second": [1-9]' "$out"; then
    effect_of "io_uring" "$figure for [0-9]+ ms of CPU a GiB; a pool of threads: $figure for [0-9]+ ms"
fi
effect_of "memory" "a GiB that is held need not be read: [0-9]+ ms less"
effect_of "drive" "a token that misses n experts waits n x [0-9.e+-]+ ms"

# less memory than the machine has, by a control group: where one can be made
group=
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -z "$group" ] && mkdir "$root/moeflux-doctor-$$" 2>/dev/null && group=$root/moeflux-doctor-$$
done
limit=memory.max
[ ! -e "$group/memory.limit_in_bytes" ] || limit=memory.limit_in_bytes
if [ -n "$group" ] && [ -z "${SANITIZE:-}" ] && echo 512M 2>/dev/null >"$group/$limit" &&
    (echo 0 >"$group/cgroup.procs") 2>/dev/null; then
    last="doctor in a control group of 512 MiB"
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$MOEFLUX" doctor --no-measure >"$out" 2>"$err"
    expect_true grep -Eq '^note +memory .*, [0-9.]+ MiB free for models' "$out"
    expect_true grep -q 'A control group' "$out"
    expect_true grep -Eq '^(ok|note) +control group +limits memory' "$out"
fi
[ -z "$group" ] || for _ in 1 2 3 4 5 6 7 8 9 10; do
    rmdir "$group" 2>/dev/null && break
    sleep 0.2
done

# fewer CPUs than there are, by a quota: where that can be set
run doctor --no-measure
n_checks=$((n_checks + 1))
before=$(sed -n 's/^[a-z]* *control group *//p' "$out")
group=
for root in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    [ -z "$group" ] && mkdir "$root/moeflux-doctor-$$" 2>/dev/null && group=$root/moeflux-doctor-$$
done
case $before in
*CPUs) ;; # there is one already
*)
    if [ -n "$group" ] && [ "$(nproc)" -ge 2 ] &&
        { echo "100000 100000" >"$group/cpu.max" || echo 100000 >"$group/cpu.cfs_quota_us"; } 2>/dev/null &&
        (echo 0 >"$group/cgroup.procs") 2>/dev/null; then
        last="doctor in a control group of one CPU"
        sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$MOEFLUX" doctor --no-measure >"$out" 2>"$err"
        expect_true grep -Eq '^note +control group +limits (memory and )?CPUs$' "$out"
        expect_true grep -Eq "It pays for 1 of [0-9]+ CPUs" "$out"
    fi
    ;;
esac
[ -z "$group" ] || for _ in 1 2 3 4 5 6 7 8 9 10; do
    rmdir "$group" 2>/dev/null && break
    sleep 0.2
done

# a report: with the shape, without the path; never over a file that is there
cp -r "$model" "$scratch/secret name"
run doctor "$scratch/secret name" --no-measure --report "$scratch/report.json"
expect_true grep -q '"n_experts": ' "$scratch/report.json"
expect_true grep -q "secret name" "$out"
n_checks=$((n_checks + 1))
# the system's own name may be the machine's as well
sed 's/"name": "system", "value": "[^"]*"//' "$scratch/report.json" | grep -qw "secret\|moeflux-cli\|$(hostname)" && fail "the report names what is private"
cp "$scratch/report.json" "$scratch/first"
run doctor --no-measure --report "$scratch/report.json"
expect_code 1
expect_error "$scratch/report.json: cannot be made: File exists"
run doctor --no-measure --report "$scratch/no/report.json" # before anything is looked at
expect_error "$scratch/no/report.json: cannot open: No such file or directory"
expect_same "$scratch/report.json" "$scratch/first"
run doctor "$scratch/nothing" --no-measure --report "$scratch/second"
expect_code 1
n_checks=$((n_checks + 1))
grep -q "nothing:" "$scratch/second" && fail "the report names what is private"

# nor where a path is longer than what is said of it, or a vocabulary's fault names the file
long=$scratch/$(printf '%0120d/%0120d/%0120d' 1 2 3 | tr '0-9' 'p')
mkdir -p "$long"
cp -r "$model" "$long/secret"
run doctor "$long/secret" --no-measure --report "$scratch/third"
expect_true grep -Eq '^(ok|note) +models +[.][.][.][p/]+/secret: [^:]*, .* free$' "$out"
expect_true sh -c '! grep -q "secret\|ppp" "$0"' "$scratch/third"
"$MAKE_CHECKPOINT" --preset qwen3-30b-a3b --layers 1 --experts 2 --experts-per-token 1 --hidden 128 --expert-hidden 128 \
    --vocab 256 --heads 2 --kv-heads 1 --head-dim 64 --form gguf --type Q8_0 --quiet "$scratch/gguf" >/dev/null
# a vocabulary of a kind that there is not
LC_ALL=C sed 's/tokenizer.ggml.model\(....\)\(........\)none/tokenizer.ggml.model\1\2gpt9/' "$scratch/gguf/model.gguf" \
    >"$scratch/secret.gguf"
run doctor "$scratch/secret.gguf" --no-measure --report "$scratch/fourth"
expect_true grep -q 'secret.gguf: key tokenizer.ggml.model is gpt9' "$out"
expect_true sh -c '! grep -q secret "$0"' "$scratch/fourth"
expect_true grep -q '"advice": "unsupported"' "$scratch/fourth"

run doctor one two
expect_usage_error "doctor: unexpected argument 'two'"
run doctor --sing
expect_usage_error "doctor: '--sing' is not an option"
finish
