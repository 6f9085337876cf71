#!/bin/sh
# SPDX-License-Identifier: MIT
# load.sh BUILD_DIR [SECONDS]: the server's heavy tests in their long form: 64 clients for so long
# (default 300), kill -9 twenty times, 40,000 hostile requests.
set -eu
build=$1
LOAD_SECONDS=${2:-300}
LOAD_ROUNDS=20
LOAD_REQUESTS=40000
export LOAD_SECONDS LOAD_ROUNDS LOAD_REQUESTS
cmake --build "$build" --target moeflux make_random_checkpoint server_raw server_load server_killed server_storm
ctest --test-dir "$build" --verbose --timeout 3600 --tests-regex '^server_(load|killed|storm)$' </dev/null
