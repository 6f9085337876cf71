# SPDX-License-Identifier: MIT
# moeflux template: the text of a conversation and nothing else; what is refused ends it with 1. That
# the text is jinja2's is for the tests of src/text.
. ./lib.sh
cp -r "$SOURCE/tests/text/data/deepseek" "$scratch/model"
model=$scratch/model
cat >"$model/chat_template.jinja" <<'END'
{{- bos_token }}
{%- for m in messages %}
[{{ m.role }}] {{ m.content }}
{%- for c in m.tool_calls or [] %}
 {{ c.function.name }}({{ c.function.arguments | tojson }})
{%- endfor %}
{%- endfor %}
{%- if tools %}
tools {{ tools | map(attribute='name') | join(',') }}
{%- endif %}
{%- if documents %}
documents {{ documents | length }}
{%- endif %}
{%- if add_generation_prompt %}
>{{ mood | default('') }}{{ enable_thinking }}
{%- endif %}
{%- if stern %}
{{- raise_exception('not with you, ' ~ messages[0].role) }}
{%- endif %}
END
cat >"$scratch/messages.json" <<'END'
[{"role": "user", "content": "Größe?"},
 {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"b": 1.0, "a": "ü"}}}]}]
END
echo '[{"name": "f"}, {"name": "g"}]' >"$scratch/tools.json"

printf '<｜begin▁of▁sentence｜>[user] Größe?[assistant]  f({"b": 1.0, "a": "ü"})>' >"$scratch/expected"
run template "$model" --messages "$scratch/messages.json"
expect_code 0
expect_empty "$err"
expect_same "$out" "$scratch/expected"
run_with "$scratch/messages.json" template "$model" --messages -
expect_same "$out" "$scratch/expected"

printf '<｜begin▁of▁sentence｜>[user] Größe?[assistant]  f({"b": 1.0, "a": "ü"})tools f,gdocuments 2' >"$scratch/expected"
run template "$model" --messages "$scratch/messages.json" --tools "$scratch/tools.json" \
    --documents "$scratch/tools.json" --no-generation-prompt
expect_code 0
expect_same "$out" "$scratch/expected"

printf 'B[user] Größe?[assistant]  f({"b": 1.0, "a": "ü"})>[1, None]False' >"$scratch/expected"
run template "$model" --messages "$scratch/messages.json" --set 'mood=[1, null]' \
    --set enable_thinking=false --set 'bos_token="B"'
expect_code 0
expect_same "$out" "$scratch/expected"

# refused: by the template, by its text, by JSON
run template "$model" --messages "$scratch/messages.json" --set stern=true
expect_error "chat_template.jinja: line 1[789]: the template refuses: not with you, user"
expect_empty "$out"
for value in tru '1,"mood":2' '1}' '' '{'; do
    run template "$model" --messages "$scratch/tools.json" --set "stern=$value"
    expect_usage_error "--set: 'stern=$value' is not NAME=JSON"
done
run template "$model" --messages "$model/chat_template.jinja"
expect_error "$model/chat_template.jinja: not JSON at byte [0-9]*: *"
run template "$model" --messages "$scratch/messages.json" --tools "$model/chat_template.jinja"
expect_error "$model/chat_template.jinja: not JSON at byte [0-9]*: *"
run template "$model" --messages -
expect_error "standard input: not JSON at byte [0-9]*: *"
run template "$model" --messages "$scratch/nowhere.json"
expect_error "*/nowhere.json: *"
run template "$model" --messages "$scratch/messages.json" --template other
expect_error "$model has no chat template 'other'"
echo 'a{% for %}' >"$model/chat_template.jinja"
run template "$model" --messages "$scratch/messages.json"
expect_error "chat_template.jinja: line 1: expected an expression, got the end of the tag"
rm "$model/chat_template.jinja"
mkdir "$model/additional_chat_templates"
echo 'T{{ tools | length }}' >"$model/additional_chat_templates/tool_use.jinja"
run template "$model" --messages "$scratch/messages.json" --tools "$scratch/tools.json"
expect_code 0
printf T2 >"$scratch/expected"
expect_same "$out" "$scratch/expected"
run template "$model" --messages "$scratch/messages.json"
expect_error "$model has no chat template 'default'"

rm -r "$model/additional_chat_templates" "$model/tokenizer_config.json"
run template "$model" --messages "$scratch/messages.json"
expect_error "$model has no chat template"

# several templates in tokenizer_config.json
cat >"$model/tokenizer_config.json" <<'END'
{"bos_token": {"content": "BOS"}, "image_token": "IMG", "chat_template": [
    {"name": "default", "template": "{{ bos_token }}{{ image_token }}D"},
    {"name": "tool_use", "template": "U"}, {"name": "rag", "template": "R"}]}
END
for name in default:BOSIMGD tool_use:U rag:R; do
    run template "$model" --messages "$scratch/messages.json" --template "${name%:*}"
    printf %s "${name#*:}" >"$scratch/expected"
    expect_same "$out" "$scratch/expected"
done
printf U >"$scratch/expected"
run template "$model" --messages "$scratch/messages.json" --tools "$scratch/tools.json"
expect_same "$out" "$scratch/expected"

run template "$model"
expect_usage_error "template: --messages is missing"
run template --messages "$scratch/messages.json"
expect_usage_error "template: MODEL is missing*"
run template "$model" --messages "$scratch/messages.json" --set mood
expect_usage_error "--set: 'mood' is not NAME=JSON"
finish
