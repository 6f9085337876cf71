# SPDX-License-Identifier: MIT
# Logs of agents, thirty turns with tools each, in the shape in which Claude Code, Codex, editors by
# the AI SDK and Open WebUI send them: of all prompts no more than 1.1 times what is new is evaluated,
# though the history comes back with thoughts dropped or moved, arguments written otherwise, marks and
# headers changed.
. ./lib_server.sh
call='<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\":\"Bash\",  \"arguments\":{\"command\":\"make test\",\"timeout\":9.0}}\n</tool_call>'
read='I look.\n<tool_call>\n{\"name\": \"Read\", \"arguments\": {\"file_path\": \"src\/list.c\", \"limit\": 40}}\n<\/tool_call>'
thinking_model "$scratch/agent" qwen36.jinja "$call"
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/agent/chat_template.jinja"
sed "s|\"<think>\"|\"$(printf '%s' "$read" | sed 's/\\/\\\\/g')\"|" "$scratch/agent/tokenizer.json" >"$scratch/tokenizer"
mv "$scratch/tokenizer" "$scratch/agent/tokenizer.json"
logs="claude_code codex ai_sdk open_webui"
# thousands of tokens each
{ [ -n "${MF_TEST_LONG:-}" ] && [ -z "${SANITIZE:-}" ]; } || logs=claude_code
for log in $logs; do
    last="agent log $log"
    "$(dirname "$RAW")/server_agent_log" data/$log.json "$MOEFLUX" serve "$scratch/agent" --ctx 16384 >"$out" 2>"$err"
    code=$?
    expect_code 0
    [ "$code" -eq 0 ] || sed 's/^/  /' "$err" | cut -c1-2000
    tail -n 2 "$out"
done
finish
