# SPDX-License-Identifier: MIT
# moeflux doctor: what it finds here, what it finds wrong, and a report that names nobody's files.
. ./lib.sh
model=$SOURCE/tests/model/data/mlx_4bit

run doctor --no-measure
[ "$code" -eq 0 ] || expect_code 1
for name in cpu load memory io_uring gpu models; do
    n_checks=$((n_checks + 1))
    grep -Eq "^(ok|note|bad) +$name " "$out" || fail "nothing about $name"
done
expect_true [ "$(awk 'length > 340' "$out" | wc -l)" -eq 0 ]
expect_empty "$err"

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

# measured, with a model, as JSON
run doctor "$model" --json
expect_lines "$out" 1
expect_glob "$out" '{"version": "*", "commit": "*", "compiler": "*", "commands": "*", "findings": [[]{"grade": "*"name": "bandwidth"*}[]], "model": {"family": "qwen3_5_moe"*"verdict": "*"}}'
expect_true grep -q '"name": "drive", "value": "[0-9.]* .iB/s in reads of' "$out"

# a report: with the shape, without the path; never over a file that is there
cp -r "$model" "$scratch/secret name"
run doctor "$scratch/secret name" --no-measure --report "$scratch/report.json"
expect_true grep -q '"n_experts": ' "$scratch/report.json"
expect_true grep -q "secret name" "$out"
n_checks=$((n_checks + 1))
grep -qw "secret\|moeflux-cli\|$(hostname)" "$scratch/report.json" && fail "the report names what is private"
cp "$scratch/report.json" "$scratch/first"
run doctor --no-measure --report "$scratch/report.json"
expect_code 1
expect_exact "$err" "moeflux: $scratch/report.json: File exists"
expect_same "$scratch/report.json" "$scratch/first"
run doctor "$scratch/nothing" --no-measure --report "$scratch/second"
expect_code 1
n_checks=$((n_checks + 1))
grep -q "nothing:" "$scratch/second" && fail "the report names what is private"

run doctor one two
expect_usage_error "doctor: unexpected argument 'two'"
run doctor --sing
expect_usage_error "doctor: '--sing' is not an option"
finish
