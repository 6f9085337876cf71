# SPDX-License-Identifier: MIT
# tools/check_hub.sh: huggingface_hub ($PYTHON) and moeflux pull share a cache.
. ./lib_hub.sh
: "${PYTHON:?tools/check_hub.sh sets it}"
export HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_PROGRESS_BARS=1 HF_HUB_DISABLE_TELEMETRY=1
random_model
start_hub
publish org/tiny "$model"

# hub PYTHON: with huggingface_hub; prints
hub() {
    last="huggingface_hub: $1"
    "$PYTHON" -c "from huggingface_hub import *
$1" >"$out" 2>"$err"
    code=$?
    [ $code -eq 0 ] || tail -3 "$err"
}

# what pull fetched, it finds: without the hub, and with it nothing is fetched again
run pull org/tiny
expect_code 0
hub 'print(snapshot_download("org/tiny", local_files_only=True))'
expect_code 0
expect_exact "$out" "$(snapshot org/tiny)"
hub 'print(hf_hub_download("org/tiny", "config.json", local_files_only=True))'
expect_exact "$out" "$(snapshot org/tiny)/config.json"
: >"$log"
hub 'print(snapshot_download("org/tiny"))'
expect_code 0
expect_exact "$out" "$(snapshot org/tiny)"
expect_true [ "$(n_requests '^store ')" -eq 0 ]
hub 'r = [r for r in scan_cache_dir().repos if r.repo_id == "org/tiny"][0]
print(r.size_on_disk == sum(f.size_on_disk for f in list(r.revisions)[0].files), [str(w) for w in scan_cache_dir().warnings])'
expect_exact "$out" "True []"

# what it fetched runs here, and pull fetches nothing again
forget_cache
hub 'print(snapshot_download("org/tiny"))'
expect_code 0
run info org/tiny
expect_code 0
run run org/tiny -p x --raw -n 4 --temp 0
expect_code 0
: >"$log"
run pull org/tiny
expect_code 0
expect_exact "$out" "$(snapshot org/tiny)"
expect_true [ "$(n_requests '^store ')" -eq 0 ]

# one file of it is not the model
forget_cache
hub 'hf_hub_download("org/tiny", "config.json")'
expect_code 0
run info org/tiny
expect_error "org/tiny: the hub's cache * has not all of it: *"
run pull org/tiny
expect_code 0
expect_true is_pulled org/tiny "$model"
# the same places
for places in "HF_HOME=$scratch/a" "HF_HOME=$scratch/b HF_HUB_CACHE=$scratch/c" "-u HF_HOME XDG_CACHE_HOME=$scratch/d" \
    "-u HF_HOME -u XDG_CACHE_HOME HOME=$scratch/e"; do
    last="places: $places"
    # shellcheck disable=SC2086 # assignments
    env $places "$PYTHON" -c 'from huggingface_hub import constants; print(constants.HF_HUB_CACHE)' >"$out"
    # shellcheck disable=SC2086
    env $places "$MOEFLUX" info org/none 2>"$err"
    expect_true grep -qF "($(cat "$out"))" "$err"
done
finish
