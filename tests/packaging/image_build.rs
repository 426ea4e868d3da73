//! The image, built by buildah without a daemon and without a registry, and run. Its base images
//! cannot be fetched by a test: a folder with the binary of the tests stands for the first stage,
//! and the libraries of this machine for the second stage's base.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{BINARY, root};
use crate::support::needs;

/// The base of the second stage, as the Dockerfile names it.
const BASE: &str = "gcr.io/distroless/cc-debian12:nonroot";

/// Images and containers of the test's own.
struct Buildah {
    folder: tempfile::TempDir,
}

impl Buildah {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("buildah");
        let at = |name: &str| self.folder.path().join(name);
        command
            .arg("--root")
            .arg(at("images"))
            .arg("--runroot")
            .arg(at("run"))
            .args(["--storage-driver", "vfs"]);
        command.args(arguments).current_dir(root());
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("buildah starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    /// The output of a command in the image.
    fn within(&self, container: &str, listen: &str, command: &[&str]) -> String {
        self.run(
            &[
                &[
                    "run",
                    "--isolation",
                    "chroot",
                    "--env",
                    listen,
                    container,
                    "--",
                ],
                command,
            ]
            .concat(),
        )
    }
}

/// Ends the server with it: buildah's child dies with buildah.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        println!("the container: {ended:?}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

/// Writes the parts of the base image that the binary needs: its libraries, and a user.
fn base(folder: &Path) {
    let libraries = Command::new("ldd")
        .arg(BINARY)
        .output()
        .expect("ldd starts");
    let libraries = String::from_utf8(libraries.stdout).expect("text");
    for library in libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        copy(Path::new(library), &folder.join(&library[1..]));
    }
    fs::create_dir_all(folder.join("etc")).expect("a folder");
    fs::write(
        folder.join("etc/passwd"),
        "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
    )
    .expect("written");
    fs::write(folder.join("etc/group"), "nonroot:x:65532:\n").expect("written");
}

#[test]
fn the_image_is_built_without_a_daemon_and_serves_as_nobody() {
    let buildah = Buildah {
        folder: tempfile::tempdir().expect("a folder"),
    };
    if !needs::can_run("buildah", &mut buildah.command(&["from", "scratch"])) {
        return;
    }
    let at = |name: &str| buildah.folder.path().join(name);
    base(&at("base"));
    fs::write(at("Base"), "FROM scratch\nCOPY base /\n").expect("written");
    let file = at("Base").display().to_string();
    let context = buildah.folder.path().display().to_string();
    buildah.run(&[
        "build",
        "--isolation",
        "chroot",
        "-t",
        BASE,
        "-f",
        &file,
        &context,
    ]);
    copy(
        Path::new(BINARY),
        &at("stage/build/optimized/release/gridhook"),
    );
    fs::create_dir_all(at("stage/store/gridhook")).expect("a folder");
    let stage = format!("build={}", at("stage").display());
    buildah.run(&[
        "build",
        "--isolation",
        "chroot",
        "--pull=never",
        "--build-context",
        &stage,
        "--format",
        "docker",
        "-t",
        "gridhook",
        "-f",
        "config/packaging/Dockerfile",
        ".",
    ]);
    let image: Value =
        serde_json::from_str(&buildah.run(&["inspect", "--type", "image", "localhost/gridhook"]))
            .expect("JSON");
    let config = &image["Docker"]["config"];
    assert_eq!(
        (&config["User"], &config["Cmd"]),
        (&json!("nonroot"), &json!(["serve"])),
        "{config}"
    );
    assert_eq!(
        config["Healthcheck"]["Test"],
        json!(["CMD", "/usr/bin/gridhook", "health", "--live"]),
        "{config}"
    );

    let container = buildah.run(&["from", "--pull-never", "localhost/gridhook"]);
    // The network is the machine's, so any port that is free.
    let mut server = buildah.command(&[
        "run",
        "--isolation",
        "chroot",
        "--env",
        "GRIDHOOK_SERVER__LISTEN=127.0.0.1:0",
    ]);
    server
        .args([&container, "--", "/usr/bin/gridhook", "serve"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Running(server.spawn().expect("buildah starts"));
    let mut lines = BufReader::new(server.0.stdout.take().expect("its output"))
        .lines()
        .map_while(Result::ok);
    let listens = lines.find_map(|line| {
        line.strip_prefix("gridhook listens on http://")
            .map(str::to_owned)
    });
    let listen = format!("GRIDHOOK_SERVER__LISTEN={}", listens.expect("an address"));
    assert_eq!(
        buildah.within(
            &container,
            &listen,
            &["/usr/bin/gridhook", "health", "--live"]
        ),
        "alive"
    );
    // Its data is there, for its own user only.
    let mounted = buildah.run(&["mount", &container]);
    let data = Path::new(&mounted).join("var/lib/gridhook");
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&data).expect("a folder"));
    assert_eq!(owner, 65_532);
    assert_eq!(
        buildah.within(&container, &listen, &["/usr/bin/gridhook", "--version"]),
        format!("gridhook {}", env!("CARGO_PKG_VERSION"))
    );
}
