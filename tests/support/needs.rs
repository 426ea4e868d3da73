//! The needs of a test. If one is missing the test fails, unless `GRIDHOOK_SKIP` has the name of
//! the need (`GRIDHOOK_SKIP=mount,strace`); then the test is skipped, and `make test` lists it at
//! the end (`.ci/test`).

use std::{
    cell::Cell,
    collections::HashSet,
    env,
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use parking_lot::Mutex;

/// The names that `GRIDHOOK_SKIP` may have, and what is needed.
const NEEDS: [(&str, &str); 18] = [
    ("actionlint", "actionlint, which checks the workflows"),
    (
        "buildah",
        "buildah, which builds the image, and the namespaces that it needs",
    ),
    ("cargo-deb", "`cargo deb`, which makes the package"),
    (
        "chromium",
        "Debian's chromium-headless-shell, which shows the dashboard",
    ),
    (
        "faketime",
        "faketime, which sets the clock of a process wrong",
    ),
    ("fish", "the shell fish"),
    ("go", "Go, for clients in Go"),
    (
        "java",
        "java, javac and mvn, for a broker of Kafka and clients in Java",
    ),
    (
        "kubernetes",
        "helm and kubernetes-validate, which check the manifests of Kubernetes",
    ),
    ("man", "man, which reads the manual's pages"),
    (
        "mount",
        "a file system of the test's own: root, and loop devices",
    ),
    ("nats", "nats-server"),
    ("node", "node and npm, for clients in JavaScript"),
    ("python", "Python with venv, for clients in Python"),
    ("rabbitmq", "Debian's rabbitmq-server"),
    (
        "strace",
        "strace, which sees system calls and lets them fail",
    ),
    (
        "systemd",
        "systemd, and the namespaces that it needs to run as process 1",
    ),
    ("zsh", "the shell zsh"),
];

/// The needs that `.ci/tool` was run for. The lock is held meanwhile: other tests wait for what is
/// being installed.
static INSTALLED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

thread_local! {
    static SKIPPED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the test of this thread was skipped.
pub(crate) fn was_skipped() -> bool {
    SKIPPED.get()
}

/// Forgets what an earlier test in this thread skipped.
pub(crate) fn begin() {
    SKIPPED.set(false);
}

/// Whether the test can go on: what it needs is there. Panics where it is not, and `GRIDHOOK_SKIP`
/// does not say so.
pub(crate) fn is_met(need: &str, found: Result<(), String>) -> bool {
    let Err(why) = found else { return true };
    let skip = env::var("GRIDHOOK_SKIP").unwrap_or_default();
    match skipped(need, &why, &skip) {
        Ok(reported) => note(&reported),
        Err(error) => panic!("{error}"),
    }
    false
}

/// Whether this command can be run here and ends well.
pub(crate) fn can_run(need: &str, command: &mut Command) -> bool {
    install(need);
    is_met(need, runs(command))
}

/// Installs a missing tool, at the first test that needs it. `.ci/with-tools` says by what
/// (`GRIDHOOK_TOOL`), and says nothing where nobody agreed. `.ci/tool` prints why it fails, and the
/// test fails by the tool's absence.
pub(crate) fn install(need: &str) {
    let skip = env::var("GRIDHOOK_SKIP").unwrap_or_default();
    let Some(tool) =
        env::var_os("GRIDHOOK_TOOL").filter(|_| !names(&skip).any(|name| name == need))
    else {
        return;
    };
    let mut installed = INSTALLED.lock();
    if installed.get_or_insert_default().insert(need.to_owned()) {
        let ended = Command::new(tool).arg(need).stdin(Stdio::null()).status();
        drop(ended.inspect_err(|error| eprintln!(".ci/tool {need}: {error}")));
    }
}

/// Runs a command. Returns its output as the error if it fails.
pub(crate) fn runs(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// Whether Python with venv is there.
pub(crate) fn python() -> bool {
    can_run(
        "python",
        Command::new("python3").args(["-c", "import venv, ensurepip"]),
    )
}

pub(crate) fn go() -> bool {
    can_run("go", Command::new("go").arg("version"))
}

/// A Java virtual machine, Java's compiler, and Maven.
pub(crate) fn java() -> bool {
    ["java", "javac", "mvn"]
        .into_iter()
        .all(|program| can_run("java", Command::new(program).arg("-version")))
}

/// Whether Node and npm are there.
pub(crate) fn node() -> bool {
    can_run("node", Command::new("node").arg("--version"))
        && can_run("node", Command::new("npm").arg("--version"))
}

/// The folder of the repository, also for tests of a member.
pub(crate) fn repository() -> &'static Path {
    let member = Path::new(env!("CARGO_MANIFEST_DIR"));
    member
        .ancestors()
        .find(|folder| folder.join("tests/spec").is_dir())
        .expect("the repository")
}

/// `usual`, or `soak` in `make soak`, where there is time.
pub(crate) fn many<T>(usual: T, soak: T) -> T {
    if env::var_os("GRIDHOOK_SOAK").is_some() {
        soak
    } else {
        usual
    }
}

/// A test that runs in `make soak` only. Its short form is another test.
pub(crate) fn soak() -> bool {
    let is_soak = many(false, true);
    if !is_soak {
        note("runs in its long form only: make soak");
    }
    is_soak
}

/// The names in a list that is separated by commas or spaces.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ']).filter(|name| !name.is_empty())
}

/// The message of a skipped test, or why it may not be skipped.
fn skipped(need: &str, why: &str, skip: &str) -> Result<String, String> {
    let (_, what) = NEEDS
        .iter()
        .find(|(name, _)| *name == need)
        .expect("a need of the list");
    if let Some(unknown) = names(skip).find(|name| NEEDS.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = NEEDS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "GRIDHOOK_SKIP has \"{unknown}\"; expected one of {}",
            known.join(", ")
        ));
    }
    if names(skip).any(|name| name == need) {
        return Ok(format!("needs {what}: {why}"));
    }
    Err(format!(
        "this test needs {what}: {why}\nGRIDHOOK_SKIP={need} skips the tests that need it"
    ))
}

/// Reports a skipped test: in the list that is printed at the end of the run, or at once without
/// one.
fn note(reported: &str) {
    SKIPPED.set(true);
    let thread = thread::current();
    let line = format!(
        "{}: {}\n",
        thread.name().unwrap_or("a test"),
        reported.replace('\n', " ")
    );
    let list = env::var_os("GRIDHOOK_SKIPPED_LIST")
        .and_then(|list| OpenOptions::new().append(true).open(list).ok());
    match list {
        Some(mut list) => list
            .write_all(line.as_bytes())
            .expect("a list that can be written"),
        // Not by a macro: the test harness would keep what a test prints that passes.
        None => io::stderr()
            .write_all(format!("skipped: {line}").as_bytes())
            .expect("stderr can be written"),
    }
}

#[test]
fn a_need_that_is_not_met_fails_a_test_unless_it_may_be_skipped() {
    let error = skipped("mount", "must be superuser", "").expect_err("nothing may be skipped");
    assert!(
        error.contains("root, and loop devices: must be superuser\nGRIDHOOK_SKIP=mount skips"),
        "{error}"
    );
    assert_eq!(
        skipped("mount", "no", "strace, man").expect_err("another one may"),
        error.replace("must be superuser", "no")
    );
    let output = skipped("mount", "must be superuser", "strace,mount").expect("it may be skipped");
    assert!(
        output.ends_with("loop devices: must be superuser"),
        "{output}"
    );
    let error = skipped("mount", "no", "mount,strase").expect_err("no such need");
    assert!(
        error.starts_with(
            "GRIDHOOK_SKIP has \"strase\"; expected one of actionlint, buildah, cargo-deb, chromium, faketime, \
             fish, go, java, "
        ),
        "{error}"
    );
}

#[test]
fn a_command_that_is_missing_or_fails_is_reported() {
    assert_eq!(runs(&mut Command::new("true")), Ok(()));
    assert!(
        runs(Command::new("sh").args(["-c", "echo why >&2; exit 1"]))
            .is_err_and(|why| why.ends_with(": why"))
    );
    assert!(
        runs(&mut Command::new("/no/such/program")).is_err_and(|why| why.contains("No such file"))
    );
}

#[test]
fn each_need_is_one_that_can_be_installed() {
    let output = Command::new(repository().join(".ci/tool"))
        .arg("--list")
        .output()
        .expect("a script of the working copy");
    let text = String::from_utf8(output.stdout).expect("names");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        NEEDS.map(|(name, _)| name),
        ".ci/tool --list"
    );
}
