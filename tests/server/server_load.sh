# SPDX-License-Identifier: MIT
# 64 clients at once, of which a third leave before the end: equal answers, none lost, none left out.
. ./lib_load.sh
: "${LOAD_SECONDS:=$([ -z "$SANITIZE" ] && echo 10 || echo 8)}"
n_questions=$([ -z "$SANITIZE" ] && echo 48 || echo 12)
program server_load "$LOAD_SECONDS" 64 "$LOAD_SEED" "$n_questions" "$MOEFLUX" serve "$demo" --ctx 2048 --queue 128
# with less memory than they want together, and a store to put them to
program server_load "$((LOAD_SECONDS / 4))" 24 "$LOAD_SEED" "$n_questions" "$MOEFLUX" serve "$demo" --ctx 640 --sessions 8 \
    --state-dir "$scratch/states" --state-dir-size 64M
finish
