#!/bin/sh
# Boots Debian's systemd as process 1 of the namespaces that this runs in, with the package installed. The file system is
# the machine's own below a layer in memory; the network is the machine's.
# boot.sh FOLDER PACKAGE LISTEN
set -eu
folder=$1 package=$2 listen=$3
root=$folder/root

mount -t tmpfs -o mode=755 tmpfs "$folder"
mkdir "$folder/changes" "$folder/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/changes,workdir=$folder/work" "$root"

# As systemd-nspawn has it: what belongs to the machine can only be read.
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
mkdir "$root/sys/fs/cgroup/unified" "$root/sys/fs/cgroup/systemd"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
if ! mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"; then
  # A kernel with version 2 alone.
  umount "$root/sys/fs/cgroup/unified" "$root/sys/fs/cgroup"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for path in run tmp; do
  mount -t tmpfs tmpfs "$root/$path"
done
chmod 1777 "$root/tmp"

# The package, as on a machine that never had it. A container's policy may forbid that packages start units.
rm -rf "$root/var/lib/gridhook" "$root/var/lib/gridhook-backups" "$root/etc/gridhook" "$root/etc/systemd/system"
rm -rf "$root"/var/lib/systemd/deb-systemd-helper-* "$root/usr/sbin/policy-rc.d"
cp "$package" "$root/gridhook.deb"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" dpkg --force-confmiss --install /gridhook.deb
echo "GRIDHOOK_SERVER__LISTEN=$listen" > "$root/etc/gridhook/environment"

# Nothing else of the machine is started.
mkdir -p "$root/etc/systemd/system"
printf '[Unit]\nRequires=basic.target gridhook.service\nAfter=basic.target gridhook.service\n' \
  > "$root/etc/systemd/system/test.target"
ln -s /dev/null "$root/etc/systemd/system/systemd-networkd-wait-online.service"
# The root of the namespace itself, below which systemd makes those of its units.
cd "$root"
mkdir machine
pivot_root . machine
# The unit has a user namespace, which the kernel does not allow in a chroot.
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . \
  /bin/sh -c 'umount -l /machine && unshare --user true && exec /lib/systemd/systemd --system --unit=test.target' < /dev/null
