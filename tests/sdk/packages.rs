//! Packages of PyPI, npm, Maven and Go, installed once for each set of pinned versions: the
//! official clients, and servers that speak as clouds do.
//!
//! They go to a folder of the build, named after its contents, and are marked when they are all
//! there: an installation that was cut short is made again. A virtual environment cannot be moved,
//! so that it is made where it stays.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use parking_lot::Mutex;

/// The interpreter that has the official clients.
pub(super) static PYTHON: LazyLock<PathBuf> =
    LazyLock::new(|| environment("python", "requirements.txt").join("bin/python"));

/// The packages that test the server against its own description. They are apart from the clients,
/// which need none of them.
pub(super) static SCHEMATHESIS: LazyLock<PathBuf> =
    LazyLock::new(|| environment("python", "schemathesis.txt").join("bin/schemathesis"));

/// The interpreter that has `az`.
pub(super) static AZ: LazyLock<PathBuf> =
    LazyLock::new(|| environment("az", "requirements.txt").join("bin/python"));

/// The program with the scenarios in Go, compiled.
pub(super) static GO: LazyLock<PathBuf> = LazyLock::new(|| {
    let files = fs::read_dir(sources("go")).expect("a folder of scenarios");
    let mut names: Vec<String> = files
        .map(|file| {
            file.expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let build = |sources: &Path, folder: &Path| {
        let arguments = [
            "build",
            "-buildvcs=false",
            "-mod=readonly",
            "-ldflags=-s -w",
            "-o",
        ];
        run(Command::new("go")
            .args(arguments)
            .arg(folder.join("scenarios"))
            .current_dir(sources));
    };
    installed("go", &names, build).join("scenarios")
});

/// OpenTofu.
pub(super) static TOFU: LazyLock<PathBuf> = LazyLock::new(|| {
    let package = "github.com/opentofu/opentofu/cmd/tofu";
    compile_module("tofu", package, "tofu").join("tofu")
});

/// The folder of Azure's provider azapi for OpenTofu, which looks for it by its name.
pub(super) static AZAPI: LazyLock<PathBuf> = LazyLock::new(|| {
    let package = "github.com/Azure/terraform-provider-azapi";
    compile_module("azapi", package, "terraform-provider-azapi")
});

/// The folder of a program that a module of Go has.
fn compile_module(name: &str, package: &str, program: &str) -> PathBuf {
    installed(name, &["go.mod", "go.sum"], |sources, folder| {
        fs::create_dir(folder).expect("a folder of programs");
        let arguments = [
            "build",
            "-buildvcs=false",
            "-mod=readonly",
            "-ldflags=-s -w",
            "-o",
        ];
        run(Command::new("go")
            .args(arguments)
            .arg(folder.join(program))
            .arg(package)
            .current_dir(sources));
    })
}

/// The program that speaks as S3 does.
pub(crate) static MOTO: LazyLock<PathBuf> =
    LazyLock::new(|| environment("stores", "requirements.txt").join("bin/moto_server"));

/// The script for Node that speaks as a service of Azure Storage does: `blob` or `queue`.
pub(crate) fn azurite(service: &str) -> PathBuf {
    static MODULES: LazyLock<PathBuf> = LazyLock::new(|| modules("stores"));
    MODULES
        .join("node_modules/azurite/dist/src")
        .join(service)
        .join("main.js")
}

/// The folder of the broker of Kafka.
pub(crate) static KAFKA: LazyLock<PathBuf> =
    LazyLock::new(|| installed("kafka", &["pom.xml"], jars));

/// The jar of openapi-generator.
pub(super) static GENERATOR: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = installed("generator", &["pom.xml"], jars);
    let files = fs::read_dir(folder).expect("a folder of artifacts");
    let mut files = files.map(|file| file.expect("an entry").path());
    let is_jar = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jar");
    files
        .find(is_jar)
        .expect("one artifact without dependencies")
});

/// The interpreter that has what generated clients need.
pub(super) static GENERATED_PYTHON: LazyLock<PathBuf> =
    LazyLock::new(|| environment("generator", "requirements.txt").join("bin/python"));

/// The folder of the scenarios in Java, compiled, and of what they need.
pub(super) static JAVA: LazyLock<PathBuf> = LazyLock::new(|| {
    let files = ["pom.xml", "Scenarios.java", "Trust.java", "Webhook.java"];
    installed("java", &files, |sources, folder| {
        jars(sources, folder);
        let classes = format!("{}/*", folder.display());
        run(Command::new("javac")
            .args(["-encoding", "UTF-8", "-cp", &classes, "-d"])
            .arg(folder)
            .args(files[1..].iter().map(|file| sources.join(file))));
    })
});

/// The artifacts of a `pom.xml`.
fn jars(sources: &Path, folder: &Path) {
    let copy = [
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        "-f",
    ];
    let into = format!("-DoutputDirectory={}", folder.display());
    run(Command::new("mvn")
        .args(copy)
        .arg(sources.join("pom.xml"))
        .arg(into));
}

/// The interpreter that has OpenTelemetry's own protobuf, and the script that reads requests with
/// it.
pub(crate) static OTLP: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| {
    (
        environment("otlp", "requirements.txt").join("bin/python"),
        sources("otlp").join("read.py"),
    )
});

/// The modules of a folder's list.
fn modules(language: &str) -> PathBuf {
    installed(
        language,
        &["package.json", "package-lock.json"],
        |sources, folder| {
            fs::create_dir(folder).expect("a folder of packages");
            for name in ["package.json", "package-lock.json"] {
                fs::copy(sources.join(name), folder.join(name))
                    .expect("a list of packages is copied");
            }
            run(Command::new("npm")
                .args(["ci", "--silent", "--no-audit", "--no-fund"])
                .current_dir(folder));
        },
    )
}

/// A folder in which a scenario in JavaScript finds its packages: they are looked for beside the
/// file.
pub(super) fn javascript_stage() -> tempfile::TempDir {
    stage("javascript")
}

/// The same for the scripts of `language`, a folder with a list of packages.
pub(crate) fn stage(language: &str) -> tempfile::TempDir {
    let stage = tempfile::tempdir().expect("a folder");
    symlink(
        modules(language).join("node_modules"),
        stage.path().join("node_modules"),
    )
    .expect("a link to the packages");
    for entry in fs::read_dir(sources(language)).expect("a folder of scenarios") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "mjs") {
            let name = path.file_name().expect("a file's name");
            fs::copy(&path, stage.path().join(name)).expect("a scenario is copied");
        }
    }
    stage
}

/// Where the scenarios of a language are.
pub(crate) fn sources(language: &str) -> PathBuf {
    let parent = if language == "browser" {
        "tests/dashboard"
    } else {
        "tests/sdk"
    };
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(parent)
        .join(language)
}

/// A virtual environment with the packages of `list`.
fn environment(language: &str, list: &str) -> PathBuf {
    installed(language, &[list], |sources, folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder));
        // The lists are complete, except for packages that nothing here imports.
        let pip = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            "-r",
        ];
        run(Command::new(folder.join("bin/python"))
            .args(pip)
            .arg(sources.join(list)));
    })
}

fn installed(language: &str, lists: &[&str], install: impl FnOnce(&Path, &Path)) -> PathBuf {
    // Two tests at once must not install the same.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let sources = sources(language);
    let mut hasher = DefaultHasher::new();
    for list in lists {
        fs::read(sources.join(list))
            .expect("a list of packages")
            .hash(&mut hasher);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("sdk-{language}-{:016x}", hasher.finish()));
    let complete = folder.join(".complete");
    if !complete.exists() {
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("half an installation is taken away");
        }
        install(&sources, &folder);
        fs::write(&complete, "").expect("an installation is marked");
    }
    folder
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // Maven writes its errors to standard output.
    let out = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {out}{errors}");
}
