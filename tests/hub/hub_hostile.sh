# SPDX-License-Identifier: MIT
# A hub that means harm: names that leave the cache or speak to the terminal, JSON that is none, sizes
# that are none. Nothing outside of the cache is touched, and no control character reaches stderr.
. ./lib_hub.sh
start_hub
good=1111111111111111111111111111111111111111
sha=$(printf '%064d' 0)
printf 'untouched' >"$scratch/victim"

# answers NAME JSON: what the hub says of org/x
says() {
    mkdir -p "$root/api/org/x/revision"
    printf '%s' "$1" >"$root/api/org/x/revision/main"
}
# refused GLOB
refused() {
    run pull org/x --force -q --retries 0
    expect_error "org/x: $1"
    expect_true [ ! -e "$cache" ]
    expect_true [ "$(LC_ALL=C tr -d '\n -~' <"$err" | wc -c)" -eq 0 ]
    run pull org/x --dry-run --retries 0
    expect_error "org/x: $1"
}
listing() { # NAME: JSON of a repository with a config and this file
    printf '{"sha": "%s", "siblings": [{"rfilename": "config.json", "size": 2, "blobId": "%s"}, {"rfilename": "%s", "size": 10, "blobId": "%s"}]}' \
        $commit $good "$1" $good
}
for name in ../victim ../../../../victim a/../../../victim /etc/passwd a//b.json ./a.json . .. "" a/. a/.. \
    '\u001b[31mred.json' 'a\u0000.json' 'a\n.json' '\u009b31m.json' 'a\\b.json' 'a\u007f' \
    "$(printf '%0300d' 0).json" 'a\ud800.json'; do
    says "$(listing "$name")"
    refused "the hub's listing: *"
done
# bytes that are no UTF-8, and the C1 control as UTF-8
says "$(printf '{"sha": "%s", "siblings": [{"rfilename": "a\xff\xfe.json", "size": 10, "blobId": "%s"}]}' $commit $good)"
refused "the hub's listing: *"
says "$(printf '{"sha": "%s", "siblings": [{"rfilename": "a\xc2\x9b31m.json", "size": 10, "blobId": "%s"}]}' $commit $good)"
refused "the hub's listing: *"

for text in '' '{' '[]' '17' 'null' '{}' '{"sha": 17}' '{"sha": "main", "siblings": []}' \
    "{\"sha\": \"../../../../../victim0123456789012345678901\", \"siblings\": []}" \
    "{\"sha\": \"$commit\"}" "{\"sha\": \"$commit\", \"siblings\": {}}" \
    "{\"sha\": \"$commit\", \"siblings\": [17]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": 17}]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"config.json\", \"size\": 2}]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"config.json\", \"size\": 2, \"blobId\": \"../../../victim\"}]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"config.json\", \"size\": -2, \"blobId\": \"$good\"}]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"config.json\", \"size\": 1e300, \"blobId\": \"$good\"}]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"config.json\", \"size\": 18446744073709551615, \"blobId\": \"$good\"}]}" \
    "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"m.gguf\", \"size\": 1, \"lfs\": {\"sha256\": \"$good\", \"size\": 1}}]}"; do
    says "$text"
    refused "the hub's listing: *"
done
# as deep as it is long, and more files than there are
says "$(printf '%100000s' '' | tr ' ' '[')"
refused "the hub's listing: *"
entry="{\"rfilename\": \"a.json\", \"size\": 1, \"blobId\": \"$good\"}"
says "{\"sha\": \"$commit\", \"siblings\": [$entry$(yes ", $entry" | head -20001 | tr -d '\n')]}"
refused "the hub's listing: siblings: expected at most 20000 files"
# a sum that no drive has, and a file that is none
large="\"size\": 1125899906842624, \"lfs\": {\"sha256\": \"$sha\", \"size\": 1125899906842624}"
says "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"m.gguf\", $large}]}"
run pull org/x --force -q --retries 0
expect_code 1
expect_glob "$err" "moeflux: org/x: *"
rm -rf "$cache"

# an index that names what it must not
mkdir -p "$root/files/org/x" "$root/etags/org/x"
index() {
    printf '%s' "$1" >"$root/files/org/x/model.safetensors.index.json"
    n=$(wc -c <"$root/files/org/x/model.safetensors.index.json" | tr -d ' ')
    hash=$(git_hash "$root/files/org/x/model.safetensors.index.json")
    says "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"model.safetensors.index.json\", \"size\": $n, \"blobId\": \"$hash\"}]}"
}
for text in '{' '[]' '{}' '{"weight_map": 17}' '{"weight_map": {}}' '{"weight_map": {"a": 17}}' \
    '{"weight_map": {"a": "../../../victim"}}' '{"weight_map": {"a": "missing.safetensors"}}' \
    '{"weight_map": {"a": "\u001b[31m.safetensors"}}'; do
    index "$text"
    refused "model.safetensors.index.json: field weight_map*"
done
index '{"weight_map": {"a": "b"}}'
printf '%s' '{"weight_map": {"a": "c"}}' >"$root/files/org/x/model.safetensors.index.json"
refused "model.safetensors.index.json: its content is not what the hub listed"

# one name as a file and as a folder: an error, not a file elsewhere
mkdir -p "$root/files/org/x/a.gguf"
printf '0123456789' >"$root/files/org/x/a.gguf/b-Q4_0.gguf"
hash=$(git_hash "$root/files/org/x/a.gguf/b-Q4_0.gguf")
says "{\"sha\": \"$commit\", \"siblings\": [{\"rfilename\": \"a.gguf/b-Q4_0.gguf\", \"size\": 10, \"blobId\": \"$hash\"}]}"
run pull org/x:Q4_0 --force -q
expect_code 0

# names that the user may not give
for name in org org/ /x org/x/y ../x org/../x org/.x .org/x -org/x org/x- org/x--y 'org/x y' "org/$(printf '%0100d' 0)" \
    org/x@ org/x@../../victim org/x@/etc 'org/x@a b' org/x: org/x:../victim org/x:/etc/passwd; do
    case $name in -*) continue ;; esac
    run pull "$name"
    expect_usage_error "pull: '$name' is not ORG/NAME\[@REVISION\]\[:FILE or :QUANT\]"
done
# a cache that others have written to
mkdir -p "$cache/models--org--y/refs" "$cache/models--org--y/snapshots"
for text in '' '../../../../victim' "$commit" main; do
    printf '%s' "$text" >"$cache/models--org--y/refs/main"
    run info org/y
    expect_error "org/y: the hub's cache * has not all of it: *"
done
rm "$cache/models--org--y/refs/main"
mkfifo "$cache/models--org--y/refs/main" # that nobody writes to: not waited for
run info org/y
expect_error "org/y: the hub's cache * has not all of it: *"
expect_exact "$scratch/victim" untouched
finish
