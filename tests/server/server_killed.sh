# SPDX-License-Identifier: MIT
# kill -9 in the middle of many answers: the next server finds what was stored, and none of it damaged.
. ./lib_load.sh
: "${LOAD_ROUNDS:=$([ -n "${MF_TEST_LONG:-}" ] && [ -z "$SANITIZE" ] && echo 3 || echo 1)}"
program server_killed "$LOAD_ROUNDS" 16 "$LOAD_SEED" "$MOEFLUX" serve "$demo" --ctx 2048 --state-dir "$scratch/states"
expect_true test "$(find "$scratch/states" -name 'bad-*' | wc -l)" -eq 0
finish
