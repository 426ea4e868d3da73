//! The official clients from the registries of their languages against the real binary: unchanged,
//! with nothing but addresses and credentials.
//!
//! The scenarios are in a folder for each language; each is a program that ends with status 0 or
//! says what was wrong.

mod az;
mod contract;
mod generator;
pub(crate) mod packages;
mod terraform;
mod token_service;

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use gridhook::clock::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::token_service::TokenService;
use crate::{
    server::cluster::{
        Cluster,
        shards::{SHARDS, Sharded},
    },
    support::{
        certificates::Authority,
        endpoint::{Endpoint, respond},
        nats::has_nats,
        needs,
        server::Server,
        tcp_proxy::TcpProxy,
    },
};

/// The rate of a topic in events a second: so low that clients receive 429.
const SLOW: (&str, &str) = ("PUBLISH__EVENTS_PER_SECOND", "200");

/// The longest time that a scenario may take: seconds, and on a busy machine longer.
const SCENARIO: Duration = Duration::from_secs(400);

/// A server that limits its publishers; over https if asked, with the file of the authority to
/// trust.
///
/// It is made before a scenario is compiled or its packages are installed: both load the
/// processors, and the server has the turn that keeps tests apart that measure.
struct Stage {
    server: Server,
    url: String,
    folder: TempDir,
    authority: Option<PathBuf>,
    tokens: Option<TokenService>,
}

/// The files of https.
struct Files {
    certificate: String,
    key: String,
    /// The authority that clients believe.
    believed: PathBuf,
}

impl Files {
    fn write(authority: &Authority, folder: &Path) -> Self {
        authority.issue("127.0.0.1").write(folder, "server");
        let believed = folder.join("authority.pem");
        fs::write(&believed, authority.pem()).expect("written");
        let path = |name: &str| folder.join(name).display().to_string();
        Self {
            certificate: path("server.crt"),
            key: path("server.key"),
            believed,
        }
    }
}

impl Stage {
    fn http() -> Self {
        Self::http_with(&[SLOW])
    }

    fn http_with(settings: &[(&str, &str)]) -> Self {
        let server = Server::start(settings);
        let url = format!("http://{}", server.address());
        Self {
            server,
            url,
            folder: TempDir::new().expect("a folder"),
            authority: None,
            tokens: None,
        }
    }

    fn https() -> Self {
        Self::https_with(&Authority::new(), &[SLOW])
    }

    /// Over https, with a service that issues access tokens.
    fn signed_in() -> Self {
        let authority = Authority::new();
        let tokens = TokenService::start(&authority);
        let settings = tokens.settings();
        let settings: Vec<(&str, &str)> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        Self {
            tokens: Some(tokens),
            ..Self::https_with(&authority, &settings)
        }
    }

    fn https_with(authority: &Authority, settings: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let Files {
            certificate,
            key,
            believed,
        } = Files::write(authority, folder.path());
        let tls = [
            ("SERVER__TLS_CERTIFICATE", certificate.as_str()),
            ("SERVER__TLS_KEY", &key),
        ];
        let server = Server::start_tls(&[settings, &tls].concat(), authority.client());
        let url = format!("https://{}", server.address());
        Self {
            server,
            url,
            folder,
            authority: Some(believed),
            tokens: None,
        }
    }

    fn token(&self) -> String {
        let token =
            fs::read_to_string(self.server.data_dir().join("admin-token")).expect("an admin token");
        token.trim().to_owned()
    }

    /// Runs a scenario to its end.
    fn run(&self, program: Command) {
        self.run_within(SCENARIO, program);
    }

    /// Runs a scenario in JavaScript to its end.
    fn run_javascript(&self, scenario: &str) {
        let folder = packages::javascript_stage();
        let mut program = Command::new("node");
        program.arg(folder.path().join(scenario));
        self.run(program);
    }

    /// The same as [`Self::run`], with a time limit of its own. The files that it writes stay in
    /// the folder.
    fn run_within(&self, most: Duration, mut program: Command) {
        program
            .current_dir(self.folder.path())
            .env("GRIDHOOK_URL", &self.url)
            .env("GRIDHOOK_ADMIN_TOKEN", self.token())
            .env("GRIDHOOK_TEST_RATE", SLOW.1);
        if let Some(tokens) = &self.tokens {
            program.envs(tokens.environment());
        }
        for name in ["REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"] {
            match &self.authority {
                Some(authority) => program.env(name, authority),
                None => program.env_remove(name),
            };
        }
        let log = |name: &str| self.folder.path().join(name);
        let file = |name: &str| File::create(log(name)).expect("a log");
        let mut child = program
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .expect("the scenario starts");
        let clock = Clock::system();
        let end = clock.now().after(most);
        let mut status = child.try_wait().expect("a child is waited for");
        while status.is_none() && clock.now() < end {
            thread::sleep(Duration::from_millis(10));
            status = child.try_wait().expect("a child is waited for");
        }
        if status.is_none() {
            child.kill().expect("a scenario is killed");
            child.wait().expect("a child is waited for");
        }
        let read = |name: &str| fs::read_to_string(log(name)).unwrap_or_default();
        let ended = status.map_or_else(
            || format!("was killed after {most:?}"),
            |status| format!("ended with {status}"),
        );
        let is_good = status.is_some_and(|status| status.success());
        assert!(
            is_good,
            "{program:?} {ended}\n{}{}",
            read("out"),
            read("err")
        );
    }
}

fn python(scenario: &str) -> Command {
    let mut program = Command::new(&*packages::PYTHON);
    program
        .arg(packages::sources("python").join(scenario))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    program
}

/// Runs a scenario of the clients in Go, signed in as an application.
fn go(scenario: &str) {
    if needs::go() {
        let stage = Stage::signed_in();
        let mut program = Command::new(&*packages::GO);
        program.arg(scenario);
        stage.run(program);
    }
}

#[test]
fn the_go_sdk_manages_topics_domains_and_subscriptions() {
    go("manage");
}

#[test]
fn the_go_sdk_publishes_every_schema_with_every_credential() {
    go("publish");
}

#[test]
fn the_go_sdk_publishes_to_a_namespace_and_pulls_from_it() {
    go("pull");
}

#[test]
fn the_cloudevents_sdk_for_go_publishes_in_every_mode_and_answers_the_handshake() {
    go("cloudevents");
}

fn java() -> Command {
    let mut program = Command::new("java");
    // One processor's worth of threads, and a compiler that stops early: the program runs for
    // seconds.
    program.args([
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-cp",
    ]);
    program
        .arg(format!("{0}:{0}/*", packages::JAVA.display()))
        .arg("Scenarios");
    program
}

#[test]
fn the_java_sdk_and_that_of_cloudevents_publish_and_read() {
    if needs::java() {
        Stage::https().run(java());
    }
}

#[test]
fn the_python_sdk_publishes_every_schema_with_every_credential() {
    if !needs::python() {
        return;
    }
    Stage::http().run(python("publish.py"));
    Stage::https().run(python("publish.py"));
}

#[test]
fn the_python_sdk_manages_topics_domains_and_subscriptions() {
    let _rows = crate::spec::shows(&[
        "S000-069: Batched delivery can be configured through the management SDKs.",
    ]);
    if !needs::python() {
        return;
    }
    Stage::http().run(python("manage.py"));
    Stage::https().run(python("manage.py"));
}

#[test]
fn the_python_sdk_delivers_in_the_name_of_an_identity() {
    if !needs::python() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, "s3cret").expect("written");
    let token = r#"{"token_type": "Bearer", "expires_in": 3600, "access_token": "t"}"#;
    let issuer = Endpoint::start(vec![respond(
        200,
        "content-type: application/json\r\n",
        token,
    )]);
    let stage = Stage::http_with(&[
        SLOW,
        (
            "DELIVERY__IDENTITY_TOKEN_URL",
            &format!("{}token", issuer.url()),
        ),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            secret.to_str().expect("UTF-8"),
        ),
    ]);
    stage.run(python("identity.py"));
}

#[test]
fn the_python_sdk_manages_namespaces_and_publishes_to_their_topics() {
    if !needs::python() {
        return;
    }
    Stage::http().run(python("namespaces.py"));
    Stage::https().run(python("namespaces.py"));
}

#[test]
fn the_python_sdk_consumes_what_is_pulled_from_a_namespace() {
    if !needs::python() {
        return;
    }
    Stage::http().run(python("consume.py"));
    Stage::https().run(python("consume.py"));
}

#[test]
fn the_python_sdk_raises_its_own_errors_and_obeys_retry_after() {
    if !needs::python() {
        return;
    }
    Stage::http().run(python("errors.py"));
}

#[test]
fn the_cloudevents_sdk_reads_what_is_delivered() {
    if !needs::python() {
        return;
    }
    Stage::http().run(python("readers.py"));
}

#[test]
fn the_javascript_sdk_manages_topics_domains_and_subscriptions() {
    if !needs::node() {
        return;
    }
    Stage::signed_in().run_javascript("manage.mjs");
}

#[test]
fn the_javascript_sdk_publishes_to_a_namespace_and_consumes_from_it() {
    if !needs::node() {
        return;
    }
    Stage::http().run_javascript("consume.mjs");
    Stage::https().run_javascript("consume.mjs");
}

#[test]
fn the_javascript_sdk_publishes_reads_and_obeys_retry_after() {
    if !needs::node() {
        return;
    }
    Stage::http().run_javascript("publish.mjs");
    Stage::https().run_javascript("publish.mjs");
}

/// The nodes of a cluster have one address, that of a balancer: of a standby alone first, then of
/// all nodes.
#[test]
fn the_clients_of_azure_call_any_node_of_a_cluster_and_all_of_them_through_a_balancer() {
    if !has_nats() || !needs::python() || !needs::node() {
        return;
    }
    let balancer = TcpProxy::start(&[]);
    let url = format!("http://{}", balancer.address());
    // Leases that no busy machine ends.
    let leases = [("CLUSTER__EXPIRY", "20s")];
    let mut cluster = Cluster::start(
        1,
        &[&[SLOW, ("SERVER__PUBLIC_URL", &url)], &leases[..]].concat(),
    );
    let all = cluster.addresses();
    let owner = cluster.nodes.remove(0);
    let folder = TempDir::new().expect("a folder");
    let stage = Stage {
        server: owner,
        url,
        folder,
        authority: None,
        tokens: None,
    };
    balancer.turn_to(&all[1..2]);
    stage.run(python("publish.py"));
    stage.run(python("consume.py"));
    balancer.turn_to(&all);
    stage.run(python("manage.py"));
    stage.run_javascript("publish.mjs");
    stage.run_javascript("consume.mjs");
}

/// Each topic, domain and namespace has one of several owners, and a node forwards what is of
/// another one.
#[test]
fn the_clients_of_azure_call_all_nodes_of_a_cluster_with_several_shards() {
    let _rows = crate::spec::shows(&[
        "S004-025: No custom solution is needed for scale, load balance and recovery, because the \
         client libraries provide them.",
    ]);
    if !has_nats() || !needs::python() || !needs::node() {
        return;
    }
    let balancer = TcpProxy::start(&[]);
    let url = format!("http://{}", balancer.address());
    // Leases that no busy machine ends.
    let leases = [("CLUSTER__EXPIRY", "20s")];
    let mut sharded =
        Sharded::start(&[&[SLOW, ("SERVER__PUBLIC_URL", &url)], &leases[..]].concat());
    let all = sharded.cluster.addresses();
    let folder = TempDir::new().expect("a folder");
    let stage = Stage {
        server: sharded.cluster.nodes.remove(0),
        url,
        folder,
        authority: None,
        tokens: None,
    };
    for servers in ways(&all) {
        balancer.turn_to(servers);
        ["publish.py", "consume.py"]
            .into_iter()
            .for_each(|program| stage.run(python(program)));
        ["publish.mjs", "consume.mjs"]
            .into_iter()
            .for_each(|program| stage.run_javascript(program));
    }
    ["manage.py", "namespaces.py"]
        .into_iter()
        .for_each(|program| stage.run(python(program)));
    // The same with topics of which each shard has a part.
    for namespace in ["py-consumed", "js-consumed"] {
        let group =
            "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/namespaces";
        let topic = format!("{group}/{namespace}/topics/heat");
        stage.server.command("DELETE", &topic, &Value::Null);
        stage.server.command(
            "PUT",
            &topic,
            &json!({"properties": {"partitionCount": SHARDS}}),
        );
    }
    stage.run(python("consume.py"));
    stage.run_javascript("consume.mjs");
}

/// Each node alone, and all of them.
fn ways(all: &[SocketAddr]) -> impl Iterator<Item = &[SocketAddr]> {
    all.chunks(1).chain([all])
}

/// The same for clients that send access tokens over https only.
#[test]
fn the_clients_of_azure_for_go_and_java_call_all_nodes_of_a_cluster_with_several_shards() {
    if !has_nats() || !needs::go() || !needs::java() {
        return;
    }
    let authority = Authority::new();
    let balancer = TcpProxy::start(&[]);
    let folder = TempDir::new().expect("a folder");
    let (tokens, url) = (
        TokenService::start(&authority),
        format!("https://{}", balancer.address()),
    );
    let Files {
        certificate,
        key,
        believed,
    } = Files::write(&authority, folder.path());
    let issuer = tokens.settings();
    let mut settings: Vec<(&str, &str)> = issuer
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    settings.extend([
        ("SERVER__TLS_CERTIFICATE", certificate.as_str()),
        ("SERVER__TLS_KEY", &key),
        ("SERVER__PUBLIC_URL", &url),
        // Leases that no busy machine ends.
        ("CLUSTER__EXPIRY", "20s"),
    ]);
    let mut sharded = Sharded::start_tls(&settings, &authority.client());
    let all = sharded.cluster.addresses();
    let server = sharded.cluster.nodes.remove(0);
    let stage = Stage {
        server,
        url,
        folder,
        authority: Some(believed),
        tokens: Some(tokens),
    };
    let go = |scenarios: &[&str]| {
        let mut program = Command::new(&*packages::GO);
        program.args(scenarios);
        stage.run(program);
    };
    for servers in ways(&all) {
        balancer.turn_to(servers);
        go(&["publish", "pull"]);
        stage.run(java());
    }
    go(&["manage"]);
}
