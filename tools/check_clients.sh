#!/bin/sh
# SPDX-License-Identifier: MIT
# check_clients.sh BUILD_DIR: the published clients of OpenAI's and Anthropic's APIs, and
# frameworks for agents, against `moeflux serve`. They are installed into BUILD_DIR/clients, from PyPI.
set -eu
cd "$(dirname "$0")/.."

build=$1
python=$build/clients/bin/python
[ -x "$python" ] || python3 -m venv "$build/clients"
# the programs have the versions
pins=$(sed -n 's/^PINNED = {\(.*\)}$/\1/p' tools/check_clients.py tools/check_agents.py | tr -d '" ' | sed 's/:/==/g; s/,/ /g')
# shellcheck disable=SC2086 # a list of words
"$python" -m pip install -q --disable-pip-version-check $pins

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The model of the tests that chats and thinks.
SOURCE=$PWD demo=$PWD/models/demo sh -c '. tests/cli/thinking_model.sh; thinking_model "$1" qwen36.jinja' \
    sh "$scratch/thinks"
"$python" tools/check_clients.py "$build/moeflux" models/demo "$scratch/thinks"
# One that calls tools: a word of it is a thought and a call.
SOURCE=$PWD demo=$PWD/models/demo sh -c '. tests/cli/thinking_model.sh; thinking_model "$1" qwen36.jinja "$2"' \
    sh "$scratch/calls" '<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\":\"noon\",  \"arguments\":{\"b\":2,\"a\":1.0}}\n</tool_call>'
cp tests/text/data/jinja/hermes.jinja "$scratch/calls/chat_template.jinja"
"$python" tools/check_clients_tools.py "$build/moeflux" "$scratch/calls"
# One that thinks and calls, as it is told.
SOURCE=$PWD demo=$PWD/models/demo sh -c '. tests/cli/thinking_model.sh; thinking_model "$1" qwen36.jinja' \
    sh "$scratch/told"
cp tests/text/data/jinja/hermes.jinja "$scratch/told/chat_template.jinja"
"$python" tools/check_agents.py "$build/moeflux" "$scratch/told"
