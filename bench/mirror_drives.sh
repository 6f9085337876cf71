#!/bin/sh
# SPDX-License-Identifier: MIT
# mirror_drives.sh [--build DIR] [--work DIR] [--fast MB/S] [--slow MB/S]
# Two drives of unequal, limited speed, and what --mirror makes of them: two loop devices, each with a
# copy of a small random checkpoint, whose reads a control group limits (blkio.throttle, or io.max). Prints
# what either gives alone, what both give together, and the bytes of each beside what their speeds say.
# Needs root, loop devices and a control group's limits, and 4 GB of disk; without them it says which is
# missing, and exits with 77. 1: less than 90 % of the sum was reached.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
work=${TMPDIR:-/tmp}
fast=160
slow=80
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --work) work=$2 ;;
    --fast) fast=$2 ;;
    --slow) slow=$2 ;;
    *)
        sed -n '3,8s/^# //p' "$0"
        exit 2
        ;;
    esac
    shift 2
done

skip() {
    echo "mirror_drives: skipped: $1"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "only root may set up drives"
for tool in losetup mkfs.ext4 mount; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
group=
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    grep -qw io /sys/fs/cgroup/cgroup.controllers || skip "the control groups have no io controller"
    group=/sys/fs/cgroup/moeflux-drives-$$
elif [ -f /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device ]; then
    group=/sys/fs/cgroup/blkio/moeflux-drives-$$
else
    skip "no control group limits reads (io.max or blkio.throttle)"
fi

dir=$(mktemp -d "$work/moeflux-drives-XXXXXX")
first= second=
clean_up() {
    cd /
    umount "$dir/fast" 2>/dev/null || true
    umount "$dir/slow" 2>/dev/null || true
    [ -z "$first" ] || losetup -d "$first" 2>/dev/null || true
    [ -z "$second" ] || losetup -d "$second" 2>/dev/null || true
    rmdir "$group" 2>/dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

"$build/make_random_checkpoint" --preset qwen3.6-35b-a3b --layers 4 --experts 32 "$dir/model" >/dev/null
n_bytes=$(($(du -sk "$dir/model" | cut -f1) * 1024 * 11 / 10 + 67108864))

# make_drive NAME: an image with a file system and the checkpoint; its loop device in $device
make_drive() {
    truncate -s $n_bytes "$dir/$1.img"
    mkfs.ext4 -q -F "$dir/$1.img"
    mkdir "$dir/$1"
    device=$(losetup -f --show "$dir/$1.img" 2>/dev/null) || skip "no loop device is to be had"
    mount "$device" "$dir/$1" 2>/dev/null || {
        losetup -d "$device"
        skip "a loop device cannot be mounted"
    }
    cp "$dir"/model/* "$dir/$1/"
}
make_drive fast
first=$device
make_drive slow
second=$device
rm -rf "$dir/model"
sync

mkdir "$group" 2>/dev/null || skip "no control group can be made"
# limit DEVICE MB/S
limit() {
    number=$(cat "/sys/block/${1#/dev/}/dev")
    if [ -f "$group/io.max" ]; then
        echo "$number rbps=$(($2 * 1000000))" >"$group/io.max"
    else
        echo "$number $(($2 * 1000000))" >"$group/blkio.throttle.read_bps_device"
    fi
}
# io.max is there where the parent hands the controller on
case $group in
*blkio*) ;;
*) echo +io >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || skip "the io controller is not handed on" ;;
esac
limit "$first" "$fast" 2>/dev/null || skip "reads of loop devices cannot be limited"
limit "$second" "$slow"

# read_of DEVICE: bytes read from it so far
read_of() {
    # shellcheck disable=SC2034 # the third figure is what is wanted
    read -r n_reads n_merged n_sectors rest <"/sys/block/${1#/dev/}/stat"
    echo $((n_sectors * 512))
}
# measure OPTION...: the raw rate in MB/s to $rate; bytes read of each drive to $of_first, $of_second
measure() {
    before_first=$(read_of "$first")
    before_second=$(read_of "$second")
    rate=$(
        sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$build/moeflux" bench "$@" --device cpu \
            --expert-cache 0 --predict off --warmup 0 --prompt-tokens 4 --gen-tokens 16 --repeat 1 \
            --measure-ms 4000 --quiet --json |
            sed -n 's/.*"raw_read_bytes_per_s": \([0-9.]*\).*/\1/p'
    )
    rate=$(awk -v r="$rate" 'BEGIN { printf "%.1f", r / 1e6 }')
    of_first=$(($(read_of "$first") - before_first))
    of_second=$(($(read_of "$second") - before_second))
}
measure "$dir/fast"
alone_fast=$rate
measure "$dir/slow"
alone_slow=$rate
measure "$dir/fast" --mirror "$dir/slow"
dense=$("$build/moeflux" info "$dir/fast" --json | sed -n 's/.*"resident_bytes": \([0-9]*\).*/\1/p')
echo "limits: $fast and $slow MB/s"
echo "alone: $alone_fast and $alone_slow MB/s; together $rate MB/s"
awk -v r="$rate" -v a="$alone_fast" -v b="$alone_slow" -v x="$of_first" -v y="$of_second" -v d="$dense" 'BEGIN {
    printf "of their sum: %.3f\n", r / (a + b)
    printf "experts read of each, MB: %.0f (and the dense weights) and %.0f: %.2f to 1, speeds %.2f to 1\n",
        (x - d) / 1e6, y / 1e6, (x - d) / y, a / b
    exit r / (a + b) >= 0.9 ? 0 : 1
}'
