# SPDX-License-Identifier: MIT
# A thousand connections that wait take at most 64 MiB, and stand in nobody's way.
. ./lib_load.sh
[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 1300 ] || skip "not so many descriptors"
last="a thousand connections"
"$programs/server_idle" 1000 64 "$MOEFLUX" serve "$demo" --connections 1064 >"$out" 2>"$err"
code=$?
cat "$out"
expect_code 0
expect_true grep -q '^passed$' "$out"
finish
