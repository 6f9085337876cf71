# SPDX-License-Identifier: MIT
# Who waits for a long prompt is told how far it is, and how long it will take.
. ./lib_server.sh
# as slow as it can be, so that there is something to wait for
start_server "$demo" --ctx 4096 --cpu-tier scalar --threads 1 --prefill-chunk 1 --expert-cache 0
prompt=$(head -c 11000 "$SOURCE/models/demo/heldout.txt" | tr -d '"\\' | tr '\n\t' '  ')
curl -s -N "$url/v1/completions" --data-binary "{\"prompt\":\"$prompt\",\"max_tokens\":1,\"stream\":true}" >"$scratch/waits" &
waits=$!
expect_true wait_for grep -q '^: keep-alive, [0-9]* of [0-9]* tokens of the prompt read, about [0-9]* s left$' "$scratch/waits"
kill -KILL $waits
wait $waits 2>/dev/null
stop_server
finish
