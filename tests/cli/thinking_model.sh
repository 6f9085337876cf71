# SPDX-License-Identifier: MIT
# Sourced after lib.sh: the demo model as one that thinks and chats.

# thinking_model DIR TEMPLATE [WAS]: the demo model with a chat template of tests/text/data/chat, and a
# tokenizer that has the template's special tokens. Some words give up their ids for them, " was" its
# own for </think>: the demo tells a story, so it thinks up to there and then answers. Its context is
# made longer. WAS: a JSON string that " was" becomes instead of </think>.
thinking_model() {
    mkdir "$1" || exit 1
    for file in "$demo"/*; do
        ln -s "$file" "$1/"
    done
    cp "$SOURCE/tests/text/data/chat/$2" "$1/chat_template.jinja"
    rm "$1/tokenizer.json" "$1/config.json"
    sed '/max_position_embeddings/s/4096/16384/' "$demo/config.json" >"$1/config.json"
    was=${3:-</think>} awk -v is_qwen="$(expr "$2" : qwen)" '
        function added(id, content, special) {
            printf "    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, ", id, content
            printf "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
            printf "\"special\": %s},\n", special
        }
        BEGIN {
            name[316] = ENVIRON["was"]
            name[757] = "<think>"
            name[1596] = is_qwen ? "<|im_end|>" : "<｜Assistant｜>"
            name[3175] = is_qwen ? "<|im_start|>" : "<｜User｜>"
            name[3872] = is_qwen ? "<|endofturn|>" : "<｜end▁of▁sentence｜>"
        }
        /"added_tokens": \[/ {
            print
            for (id in name)
                added(id, name[id], id == 316 || name[id] ~ /think/ ? "false" : "true")
            next
        }
        /"merges": \[/ { in_merges = 1; print; next }
        !in_merges && /": [0-9]+,?$/ {
            id = $NF + 0
            if (id in name && match($0, /"[^ ]*"/)) {
                word[substr($0, RSTART + 1, RLENGTH - 2)] = 1
                $0 = "      \"" name[id] "\": " $NF
            }
        }
        in_merges && /^      \[/ { part = ""; next }
        in_merges && /^        "/ {
            left = part
            part = $1
            sub(/^"/, "", part)
            sub(/",?$/, "", part)
            next
        }
        in_merges && /^      \]/ {
            if (!(left part in word))
                printf "%s      [\"%s\", \"%s\"]", n_merges++ ? ",\n" : "", left, part
            next
        }
        in_merges && /^    \]/ { print ""; in_merges = 0 }
        { print }' "$demo/tokenizer.json" >"$1/tokenizer.json"
}
