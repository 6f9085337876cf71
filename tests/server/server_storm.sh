# SPDX-License-Identifier: MIT
# Thousands of hostile requests: meant answers or none, good requests answered among them, no leak.
. ./lib_load.sh
: "${LOAD_REQUESTS:=$([ -z "$SANITIZE" ] && echo 4000 || echo 1500)}"
program server_storm "$LOAD_REQUESTS" 48 "$LOAD_SEED" "$MOEFLUX" serve "$demo" --ctx 2048
finish
