#!/bin/sh
# Makes the two files of a guest that serves an image of `anabranch minicache`: a kernel and an initial RAM disk with the static program, the
# kernel's virtio modules and busybox, whose script loads them, gives the network its address and becomes the program. Then:
#   contrib/minicache-guest.sh PROGRAM OUTPUT-DIRECTORY
#   qemu-system-x86_64 -M pc -nodefaults -no-reboot -m 256 -serial stdio -display none \
#     -kernel OUT/vmlinuz -initrd OUT/initrd -append 'console=ttyS0 quiet reboot=t panic=-1' \
#     -drive file=cache.img,format=raw,if=none,id=d -device virtio-blk-pci,drive=d \
#     -netdev user,id=n,hostfwd=tcp:127.0.0.1:8480-:8480 -device virtio-net-pci,netdev=n
# The cache file is the guest's disk as it is. Needs apt-get (Debian's kernel for clouds and busybox-static are downloaded, not installed), dpkg
# and cpio. PROGRAM is built as for minicache-container.sh.
set -eu
program=$(readlink -f "$1")
mkdir -p "$2"
out=$(readlink -f "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
apt-get download -q "$package" busybox-static >/dev/null 2>&1
for deb in *.deb; do
    dpkg -x "$deb" files
done
cp files/boot/vmlinuz-* "$out/vmlinuz"
mkdir -p root/modules root/proc root/sys root/dev
cp "$program" root/anabranch-minicache
cp files/bin/busybox root/busybox
number=10
for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net virtio_blk; do
    cp "$(find files/lib/modules -name "$module.ko")" "root/modules/$number-$module.ko"
    number=$((number + 1))
done
cat >root/init <<'INIT'
#!/busybox sh
/busybox mount -t proc proc /proc
/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do
    /busybox insmod "$module"
done
/busybox ip link set lo up
/busybox ip link set eth0 up
/busybox ip address add 10.0.2.15/24 dev eth0
until [ -b /dev/vda ]; do
    :
done
exec /anabranch-minicache serve /dev/vda --listen 0.0.0.0:8480
INIT
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet | gzip -9) >"$out/initrd"
ls -l "$out"
