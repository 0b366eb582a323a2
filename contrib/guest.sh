#!/bin/sh
# Makes the two files of a guest that is one static program of anabranch: a kernel and an initial RAM disk with the program, the kernel's
# virtio modules and busybox, whose script loads them, gives the networks their addresses and starts the program.
#   contrib/guest.sh PROGRAM OUTPUT-DIRECTORY WORDS…
# WORDS are those that the program gets. The addresses come from the kernel's command line: ip0=ADDRESS/LENGTH for the first network card,
# ip1= for the second, route=NETWORK,ROUTER. With listens=PORT, READY is written to the console when the program listens there. Such as
#   contrib/guest.sh anabranch-minicache OUT serve /dev/vda --listen 0.0.0.0:8480
#   qemu-system-x86_64 -M pc -nodefaults -no-reboot -m 256 -serial stdio -display none \
#     -kernel OUT/vmlinuz -initrd OUT/initrd -append 'console=ttyS0 quiet reboot=t panic=-1 ip0=10.0.2.15/24 listens=8480' \
#     -drive file=cache.img,format=raw,if=none,id=d -device virtio-blk-pci,drive=d \
#     -netdev user,id=n,hostfwd=tcp:127.0.0.1:8480-:8480 -device virtio-net-pci,netdev=n
# The cache file of minicache is the guest's disk as it is. Needs apt-get (Debian's kernel for clouds and busybox-static are downloaded, not
# installed), dpkg and cpio. PROGRAM is built as for container.sh.
set -eu
program=$(readlink -f "$1")
mkdir -p "$2"
out=$(readlink -f "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
apt-get download -q "$package" busybox-static >/dev/null 2>&1
for deb in *.deb; do
    dpkg -x "$deb" files
done
cp files/boot/vmlinuz-* "$out/vmlinuz"
mkdir -p root/modules root/proc root/sys root/dev root/tmp
cp "$program" root/program
cp files/bin/busybox root/busybox
number=10
for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net virtio_blk; do
    cp "$(find files/lib/modules -name "$module.ko")" "root/modules/$number-$module.ko"
    number=$((number + 1))
done
printf '%s\n' "$*" >root/words
cat >root/init <<'INIT'
#!/busybox sh
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sys /sys
/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do
    /busybox insmod "$module"
done
/busybox ip link set lo up
disk= port=
for word in $(/busybox cat /proc/cmdline); do
    case $word in
    ip[0-9]=*)
        card=${word%%=*}
        card=eth${card#ip}
        /busybox ip link set "$card" up
        /busybox ip address add "${word#*=}" dev "$card"
        ;;
    route=*)
        way=${word#*=}
        /busybox ip route add "${way%,*}" via "${way#*,}"
        ;;
    listens=*) port=${word#*=} ;;
    esac
done
read -r words </words
case $words in
*/dev/vda*)
    until [ -b /dev/vda ]; do
        :
    done
    ;;
esac
# The limits of a server: connections that wait, ports and descriptors.
echo 16384 >/proc/sys/net/core/somaxconn
echo 16384 >/proc/sys/net/ipv4/tcp_max_syn_backlog
echo 10000 65535 >/proc/sys/net/ipv4/ip_local_port_range
ulimit -n 65536
if [ -n "$port" ]; then
    hexadecimal=$(printf ':%04X ' "$port")
    (until /busybox grep -q "$hexadecimal.* 0A " /proc/net/tcp; do /busybox usleep 10000; done; echo READY >/dev/console) &
fi
exec /program $words
INIT
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet | gzip -9) >"$out/initrd"
ls -l "$out"
