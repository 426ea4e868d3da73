//! Disks for tests: small ones, and ones whose power is cut. A test without them fails or is
//! skipped (see `needs`).

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{
    debian::unpacked,
    needs::{can_run, is_met},
};

/// A file system that is mounted as long as this value exists.
pub(crate) struct Mount(TempDir);

impl Mount {
    /// Mounts a file system in memory.
    pub(crate) fn tmpfs(mebibytes: u32) -> Option<Self> {
        Self::with_arguments(&["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"])
    }

    /// Mounts a file system in memory with this number of files.
    pub(crate) fn with_inodes(inodes: u32) -> Option<Self> {
        let options = format!("size=512m,nr_inodes={inodes}");
        Self::with_arguments(&["-t", "tmpfs", "-o", &options, "tmpfs"])
    }

    /// Mounts a file system in memory that cannot allocate space in advance.
    pub(crate) fn ramfs() -> Option<Self> {
        Self::with_arguments(&["-t", "ramfs", "ramfs"])
    }

    /// The file system in a file.
    pub(crate) fn image(image: &Path) -> Option<Self> {
        Self::with_arguments(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()])
    }

    fn with_arguments(arguments: &[impl AsRef<OsStr>]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        can_run(
            "mount",
            Command::new("mount").args(arguments).arg(folder.path()),
        )
        .then_some(Self(folder))
    }

    /// The image is unmounted and mounted again in the same place.
    pub(crate) fn image_again(&self, image: &Path) -> bool {
        self.unmount();
        can_run(
            "mount",
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(image)
                .arg(self.path()),
        )
    }

    /// Mounts the file system again with this option.
    pub(crate) fn remount(&self, option: &str) -> bool {
        can_run(
            "mount",
            Command::new("mount")
                .args(["-o", &format!("remount,{option}")])
                .arg(self.path()),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the space but `left` bytes.
    pub(crate) fn fill(&self, left: u64) -> PathBuf {
        let path = self.path().join("filler");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[0; 1 << 16]).is_ok() {}
        let length = file.metadata().expect("a length").len();
        file.set_len(length.saturating_sub(left)).expect("cut");
        path
    }
}

impl Mount {
    fn unmount(&self) {
        // The files of a killed process are closed after a moment.
        for _ in 0..100 {
            if Command::new("umount")
                .arg(self.0.path())
                .output()
                .is_ok_and(|done| done.status.success())
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        println!("{} is still mounted", self.0.path().display());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Makes a file with an empty ext4 in it.
pub(crate) fn ext4(image: &Path, mebibytes: u64) -> bool {
    File::create(image)
        .and_then(|file| file.set_len(mebibytes << 20))
        .expect("a sparse file");
    can_run(
        "mount",
        Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image),
    )
}

/// A block device whose power can be cut: a file that is cloned, all of it in one instant, while it
/// is written to.
pub(crate) struct Device {
    // Dropped first: it lies on the other one.
    disk: Mount,
    pool: Mount,
    _image: TempDir,
}

impl Device {
    /// Makes a disk with ext4. Its file is on xfs, which clones files.
    pub(crate) fn new(mebibytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = folder.path().join("pool");
        File::create(&pool)
            .and_then(|file| file.set_len(2 << 30))
            .expect("a sparse file");
        let tools = xfs_tools()?;
        let libraries = tools.join("usr/lib/x86_64-linux-gnu");
        let mut make = Command::new(tools.join("sbin/mkfs.xfs"));
        make.env("LD_LIBRARY_PATH", libraries)
            .args(["-q", "-m", "reflink=1"])
            .arg(&pool);
        if !can_run("mount", &mut make) {
            return None;
        }
        let pool = Mount::image(&pool)?;
        let image = pool.path().join("disk");
        if !ext4(&image, mebibytes) {
            return None;
        }
        Some(Self {
            disk: Mount::image(&image)?,
            pool,
            _image: folder,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.disk.path()
    }

    /// The contents of the disk after a power cut now.
    pub(crate) fn cut(&self) -> Option<Mount> {
        let clone = self.pool.path().join("cut");
        // The clone of the cut before is gone with its mount.
        fs::remove_file(&clone).ok();
        let mut copy = Command::new("cp");
        copy.arg("--reflink=always")
            .arg(self.pool.path().join("disk"))
            .arg(&clone);
        can_run("mount", &mut copy)
            .then(|| Mount::image(&clone))
            .flatten()
    }
}

/// The folder that has mkfs.xfs.
fn xfs_tools() -> Option<PathBuf> {
    let tools = unpacked("xfsprogs", &["libinih1", "liburcu8"], "sbin/mkfs.xfs");
    let (tools, found) = match tools {
        Ok(tools) => (Some(tools), Ok(())),
        Err(why) => (None, Err(why)),
    };
    is_met("mount", found);
    tools
}

/// Whether system calls can be tampered with here.
pub(crate) fn has_strace() -> bool {
    can_run(
        "strace",
        Command::new("strace").args(["-qq", "-e", "trace=none", "true"]),
    )
}
