#!/bin/sh
# SPDX-License-Identifier: MIT
# test_numa.sh [BUILD_DIR]: runs the program on a machine of two nodes, which qemu emulates (no KVM is
# needed; some minutes): two CPUs and 3 GiB each, Debian's kernel, and tools/numa_init.sh as all that runs
# there. What it gives must be what it gives here; weights, slots and threads must be where
# docs/ARCHITECTURE.md says. Speed means nothing there. Installs qemu, a static busybox and cpio where
# they are missing, and fetches a kernel (apt-get download). 77: that cannot be had here.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
work=$build/numa
packages="qemu-system-x86 busybox-static cpio numactl"

give_up() {
    echo "numa: $*; the test cannot be made here" >&2
    exit 77
}

case $(uname -m) in
x86_64) ;;
*) give_up "this is no x86-64" ;;
esac
grep -q avx2 /proc/cpuinfo || give_up "this CPU has no AVX2, which results are compared in"
for program in moeflux make_random_checkpoint tests/unit/test_numa tests/unit/test_threads tests/model/test_ram_auto; do
    [ -x "$build/$program" ] || {
        echo "numa: there is no $build/$program; make builds it" >&2
        exit 1
    }
done

# ------------------------------------------------------------------------------ what it takes --
for tool in qemu-system-x86_64 busybox cpio numactl; do
    command -v $tool >/dev/null && continue
    [ "$(id -u)" = 0 ] || give_up "$tool is missing ($packages)"
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
        give_up "$packages cannot be installed"
    break
done
mkdir -p "$work"
kernel=$(find "$work" -name 'vmlinuz-*' | head -1)
if [ -z "$kernel" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -1)
    [ -n "$package" ] || give_up "no kernel is known (linux-image-cloud-amd64)"
    (cd "$work" && apt-get download -qq "$package" 2>/dev/null && dpkg-deb -x "$package"_*.deb kernel) ||
        give_up "no kernel can be fetched (apt-get download $package)"
    kernel=$(find "$work" -name 'vmlinuz-*' | head -1)
fi

# ------------------------------------------------------------------------- the machine's files --
root=$work/root
rm -rf "$root"
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/expected"
cp "$(command -v busybox)" "$root/bin/busybox"
cp tools/numa_init.sh "$root/init"
chmod 755 "$root/init"
for program in "$build/moeflux" "$build/tests/unit/test_numa" "$build/tests/unit/test_threads" "$build/tests/model/test_ram_auto" \
    "$(command -v numactl)"; do
    cp "$program" "$root/bin/" || exit 1
    ldd "$program" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^[ \t]*\(\/[^ ]*\) .*/\1/p' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Ln "$library" "$root$library"
    done
done
cp -r models/demo "$root/demo"
mkdir -p "$root/tests/model/data"
cp -r tests/model/data/mlx_4bit tests/model/data/v3_fp8 "$root/tests/model/data/" # of test_ram_auto
vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' models/demo/config.json | head -1)
"$build/make_random_checkpoint" --preset qwen3-30b-a3b --quiet --tokenizer models/demo --vocab "$vocab" --layers 4 --hidden 2048 \
    --heads 32 --kv-heads 8 --head-dim 128 --experts 16 --experts-per-token 4 --expert-hidden 512 "$root/random" || exit 1

# What comes here is what has to come there.
for model in demo random; do
    "$build/moeflux" run "$root/$model" --raw -p "Once upon a time" -n 12 --temp 0 --cpu-tier avx2 --device cpu --quiet \
        >"$root/expected/$model" || exit 1
done
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/root.cpio" || exit 1
rm -rf "$root"

# --------------------------------------------------------------------------------- the machine --
log=$work/log
timeout 1200 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 4 -m 6G \
    -object memory-backend-ram,id=m0,size=3G -object memory-backend-ram,id=m1,size=3G \
    -numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1 \
    -kernel "$kernel" -initrd "$work/root.cpio" -append "console=ttyS0 quiet panic=-1" \
    -nographic -no-reboot -nic none </dev/null >"$log" 2>&1
rm -f "$work/root.cpio"
tr -d '\r' <"$log" | grep -a '^numa: '
if ! grep -aq '^numa: all passed' "$log"; then
    echo "numa: failed; $log has all that was said" >&2
    exit 1
fi
