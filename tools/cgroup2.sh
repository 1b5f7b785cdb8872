#!/usr/bin/env bash
# Runs the cgroup test on version 2, whatever version this machine has: inside a
# small virtual machine, emulated (about four minutes).
# Needs qemu-system-x86, linux-image-cloud-amd64, busybox-static and cpio.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
kernel=$(ls /boot/vmlinuz-*-cloud-amd64 | tail -n 1)
mkdir -p "$dir"/root/{bin,proc,sys,dev,tmp}
cp "$(command -v busybox)" "$dir/root/bin/busybox"
go test -c -o "$dir/root/cgroup.test" ./driver/gvisor
cat > "$dir/root/init" <<'E2'
#!/bin/busybox sh
for m in "proc proc /proc" "sysfs sysfs /sys" "devtmpfs dev /dev" "cgroup2 cgroup2 /sys/fs/cgroup"; do
  set -- $m
  /bin/busybox mount -t "$1" "$2" "$3"
done
cd /tmp
/cgroup.test -test.v -test.run TestGroup && echo "cgroup2: passed"
/bin/busybox poweroff -f
E2
chmod +x "$dir/root/init"
(cd "$dir/root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) > "$dir/initrd"
timeout 900 qemu-system-x86_64 -machine q35,accel=tcg -cpu max -m 3G -smp 2 -nographic -no-reboot \
  -kernel "$kernel" -initrd "$dir/initrd" -append "console=ttyS0 cgroup_no_v1=all quiet panic=-1" | tee "$dir/log"
grep -q "cgroup2: passed" "$dir/log"
