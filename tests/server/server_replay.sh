# SPDX-License-Identifier: MIT
# What real agents said to this server, recorded (tools/record_agent.py) and said again: every field that
# they send is taken, the events are those with which they went on, and of prompts that go on with a
# conversation no more than 1.1 times what is new is evaluated.
. ./lib_server.sh
thinking_model "$scratch/agent" qwen36.jinja
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/agent/chat_template.jinja"
logs=$(echo data/agents/*.json)
# thousands of tokens each
{ [ -n "${MF_TEST_LONG:-}" ] && [ -z "${SANITIZE:-}" ]; } || logs=data/agents/agno.json
for log in $logs; do
    last="agent log $log"
    "$(dirname "$RAW")/server_agent_replay" "$log" "$MOEFLUX" serve "$scratch/agent" --ctx 16384 --set preserve_thinking=true >"$out" 2>"$err"
    code=$?
    expect_code 0
    [ "$code" -eq 0 ] || sed 's/^/  /' "$err" | cut -c1-4000
    tail -n 2 "$out"
done
finish
