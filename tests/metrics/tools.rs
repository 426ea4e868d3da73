//! Prometheus and its promtool, from Debian's own package, unpacked and not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use parking_lot::Mutex;

/// The folder with both programs.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    // Two tests at once must not unpack the same.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus");
    let root = folder.join("root");
    let complete = folder.join(".complete");
    if !complete.exists() {
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).expect("a folder of tools");
        let fetch = || {
            Command::new("apt-get")
                .args(["-qq", "download", "prometheus"])
                .current_dir(&folder)
                .status()
        };
        if !fetch().is_ok_and(|status| status.success()) {
            // A machine that has never asked does not know what there is.
            run(Command::new("apt-get").args(["-qq", "update"]));
            assert!(
                fetch().expect("apt-get").success(),
                "Debian's package prometheus is fetched"
            );
        }
        let package = fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path());
        let package = package
            .into_iter()
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        run(Command::new("dpkg-deb")
            .arg("-x")
            .arg(package.expect("a package"))
            .arg(&root));
        fs::write(&complete, "").expect("it is marked");
    }
    root.join("usr/bin")
});

/// One of the programs.
pub(super) fn program(name: &str) -> Command {
    Command::new(PROGRAMS.join(name))
}

/// Its output; it must succeed.
pub(super) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{printed}",
        output.status
    );
    printed
}
