//! Servers of NATS with JetStream, on ports that they keep, also while they are down. Clients log
//! in with a password.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use async_nats::{
    ConnectOptions,
    jetstream::{self, Context, stream::Config},
};

use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::{needs, port::ReservedPort, server::wait_for};

/// The password of the user `gridhook`.
pub(crate) const PASSWORD: &str = "password-that-nobody-sees";

/// The largest message that the server takes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A server that starts on a machine with other work.
const START: Duration = Duration::from_secs(120);

/// Whether nats-server is there.
pub(crate) fn has_nats() -> bool {
    needs::can_run("nats", Command::new("nats-server").arg("--version"))
}

/// A process of nats-server.
pub(crate) struct Nats {
    folder: tempfile::TempDir,
    port: ReservedPort,
    /// The folder with the certificates of TLS.
    tls: Option<PathBuf>,
    child: Option<Child>,
    runtime: tokio::runtime::Runtime,
}

/// A backup of a stream: its settings, and its messages with their subjects.
pub(crate) struct StreamBackup {
    config: Config,
    messages: Vec<(String, bytes::Bytes)>,
}

/// A message of a stream: its headers and its body.
pub(crate) type Message = (async_nats::HeaderMap, Vec<u8>);

impl Nats {
    /// A server that is not started yet.
    pub(crate) fn new() -> Self {
        let authorization =
            format!("authorization {{ user: gridhook, password: \"{PASSWORD}\" }}\n");
        Self::with(
            &format!("max_payload: {MESSAGE_BYTES_MAX}\n{authorization}"),
            "always",
            None,
        )
    }

    /// Makes a server with these settings, which syncs its streams in this interval.
    fn with(more: &str, sync: &str, tls: Option<&Path>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let port = ReservedPort::new();
        let nats = Self {
            folder,
            port,
            tls: tls.map(Path::to_owned),
            child: None,
            runtime,
        };
        let settings = format!(
            "listen: \"{}\"\n{more}jetstream {{ store_dir: \"{}\", sync_interval: {sync} }}\n",
            nats.port.address,
            nats.folder.path().join("data").display()
        );
        fs::write(nats.settings(), settings).expect("settings");
        nats
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address
    }

    pub(crate) fn url(&self) -> String {
        format!(
            "{}://{}",
            if self.tls.is_some() { "tls" } else { "nats" },
            self.port.address
        )
    }

    /// Starts it, with its data, and waits until it responds.
    pub(crate) fn resume(&mut self) {
        self.start();
        self.wait();
    }

    /// Starts the server with the data that it had.
    pub(crate) fn start(&mut self) {
        let log = File::create(self.folder.path().join("log")).expect("a log");
        let mut command = Command::new("nats-server");
        command
            .arg("-c")
            .arg(self.settings())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
    }

    /// Waits until it responds. A server of a cluster does once there is a majority.
    pub(crate) fn wait(&self) {
        wait_for("JetStream to answer", START, || {
            self.runtime.block_on(async {
                let Ok(context) = self.context().await else {
                    return false;
                };
                context.query_account().await.is_ok()
            })
        });
    }

    /// Gives all users another password, which the clients of this type do not know.
    pub(crate) fn replace_password(&self, password: &str) {
        let settings = fs::read_to_string(self.settings()).expect("settings");
        fs::write(self.settings(), settings.replace(PASSWORD, password)).expect("settings");
        let mut reload = Command::new("kill");
        reload.args(["-HUP", &self.id().to_string()]);
        assert!(reload.status().expect("kill runs").success());
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a server that runs");
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
    }

    pub(crate) fn delete(&self, stream: &str) {
        self.runtime.block_on(async {
            self.context()
                .await
                .expect("a client")
                .delete_stream(stream)
                .await
                .expect("a stream that is there");
        });
    }

    /// The process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("a server that runs").id()
    }

    /// Writes a key of a bucket.
    pub(crate) fn put(&self, bucket: &str, key: &str, value: &'static str) {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            let sent = context
                .publish(format!("$KV.{bucket}.{key}"), value.into())
                .await
                .expect("it is sent");
            sent.await.expect("it is stored");
        });
    }

    /// Writes the records of `nodes` nodes that are gone.
    pub(crate) fn put_nodes(&self, bucket: &str, nodes: usize) {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            for number in 0..nodes {
                let subject = format!("$KV.{bucket}.node.gone-{number}");
                let sent = context.publish(subject, "{}".into()).await;
                sent.expect("it is sent").await.expect("it is stored");
            }
        });
    }

    /// Appends a message that is no record to a stream.
    pub(crate) fn append(&self, stream: &'static str, payload: &'static str) {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            let sent = context
                .publish(stream, payload.into())
                .await
                .expect("it is sent");
            sent.await.expect("it is stored");
        });
    }

    pub(crate) fn value(&self, bucket: &str, key: &str) -> Vec<u8> {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            let stream = context
                .get_stream(format!("KV_{bucket}"))
                .await
                .expect("a bucket");
            let message = stream
                .get_last_raw_message_by_subject(&format!("$KV.{bucket}.{key}"))
                .await;
            message.expect("a value").payload.to_vec()
        })
    }

    /// Removes all messages of a stream.
    pub(crate) fn purge(&self, stream: &str) {
        self.runtime.block_on(async {
            let stream = self
                .context()
                .await
                .expect("a client")
                .get_stream(stream)
                .await
                .expect("a stream");
            stream.purge().await.expect("it is purged");
        });
    }

    /// Changes the settings of a stream.
    pub(crate) fn change(&self, stream: &str, edit: impl FnOnce(&mut Config)) {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            let stream = context.get_stream(stream).await.expect("a stream");
            let mut config = stream.cached_info().config.clone();
            edit(&mut config);
            context.update_stream(config).await.expect("it is changed");
        });
    }

    /// Lowers the limit of a stream to what it has: it takes nothing before something is removed.
    pub(crate) fn fill(&self, stream: &str) {
        self.try_limit(stream, None).expect("it is changed");
    }

    /// Sets the limit of a stream, by default to what it has, and returns the one before; [`None`]
    /// while its servers have no leader.
    pub(crate) fn try_limit(&self, stream: &str, max_bytes: Option<i64>) -> Option<i64> {
        self.runtime.block_on(async {
            let context = self.context().await.ok()?;
            let info = context.get_stream(stream).await.ok()?.cached_info().clone();
            let bytes = i64::try_from(info.state.bytes).expect("a number");
            let before = info.config.max_bytes;
            let changed = Config {
                max_bytes: max_bytes.unwrap_or(bytes),
                ..info.config
            };
            context.update_stream(changed).await.ok()?;
            Some(before)
        })
    }

    pub(crate) fn back_up(&self, stream: &str) -> StreamBackup {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            let stream = context.get_stream(stream).await.expect("a stream");
            let info = stream.cached_info();
            let mut messages = Vec::new();
            for sequence in info.state.first_sequence..=info.state.last_sequence {
                // A bucket has the last message of each subject only.
                if let Ok(message) = stream.get_raw_message(sequence).await {
                    messages.push((message.subject.to_string(), message.payload));
                }
            }
            StreamBackup {
                config: info.config.clone(),
                messages,
            }
        })
    }

    /// Puts a backup in the place of its stream. Its sequences begin at 1.
    pub(crate) fn restore(&self, backup: &StreamBackup) {
        self.delete(&backup.config.name);
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            // The servers take a moment to free the space of the former one.
            let mut tries = 0;
            while let Err(error) = context.create_stream(backup.config.clone()).await {
                tries += 1;
                assert!(tries < 100, "a stream is made: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            for (subject, payload) in &backup.messages {
                let sent = context.publish(subject.clone(), payload.clone()).await;
                sent.expect("it is sent").await.expect("it is stored");
            }
        });
    }

    /// The folder of the server's streams.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Makes a stream that takes the subject of its name.
    pub(crate) fn create(&self, name: &str) {
        self.create_replicated(name, 1);
    }

    /// Makes a stream on this number of servers.
    pub(crate) fn create_replicated(&self, name: &str, replicas: usize) {
        self.runtime.block_on(async {
            let subjects = vec![name.to_owned()];
            let config = Config {
                name: name.to_owned(),
                subjects,
                num_replicas: replicas,
                ..Config::default()
            };
            self.context()
                .await
                .expect("a client")
                .create_stream(config)
                .await
                .expect("a stream is made");
        });
    }

    /// The messages of a stream behind this sequence, and the sequence of the last one.
    pub(crate) fn messages(&self, stream: &str, behind: u64) -> (Vec<Message>, u64) {
        self.runtime.block_on(async {
            let context = self.context().await.expect("a client");
            let stream = context.get_stream(stream).await.expect("a stream");
            let last = stream.cached_info().state.last_sequence;
            let mut messages = Vec::new();
            for sequence in behind + 1..=last {
                let message = stream.get_raw_message(sequence).await.expect("a message");
                messages.push((message.headers, message.payload.to_vec()));
            }
            (messages, last)
        })
    }

    /// The first sequence that a stream has, or will have.
    pub(crate) fn first(&self, stream: &str) -> u64 {
        self.runtime.block_on(async {
            let stream = self
                .context()
                .await
                .expect("a client")
                .get_stream(stream)
                .await
                .expect("a stream");
            stream.cached_info().state.first_sequence
        })
    }

    /// The next message that is published to a subject once `begin` was called.
    pub(crate) fn next_message(&self, subject: &'static str, begin: impl FnOnce()) -> Vec<u8> {
        self.runtime.block_on(async {
            let client = self.context().await.expect("a client").client();
            let mut messages = client.subscribe(subject).await.expect("a subscription");
            client.flush().await.expect("the server has it");
            begin();
            let message = timeout(START, messages.next())
                .await
                .expect("a message in time");
            message.expect("the server runs").payload.to_vec()
        })
    }

    async fn context(&self) -> Result<Context, async_nats::ConnectError> {
        let options =
            ConnectOptions::with_user_and_password("gridhook".to_owned(), PASSWORD.to_owned());
        let options = match &self.tls {
            None => options,
            Some(folder) => {
                let [certificate, key] = ["client.crt", "client.key"].map(|name| folder.join(name));
                let options = options
                    .require_tls(true)
                    .add_root_certificates(folder.join("ca.pem"));
                options.add_client_certificate(certificate, key)
            }
        };
        options.connect(self.url()).await.map(jetstream::new)
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("nats.conf")
    }
}

/// Servers of one cluster, with an account for streams and the user `system` of the system account.
pub(crate) struct NatsCluster(pub(crate) Vec<Nats>);

impl NatsCluster {
    /// Starts a number of servers, which sync their streams at this interval.
    pub(crate) fn start(servers: usize, sync: &str) -> Self {
        Self::start_with(servers, sync, None)
    }

    /// Starts servers that have room for `bytes` of streams each.
    pub(crate) fn start_with_room(servers: usize, bytes: u64) -> Self {
        Self::start(servers, &format!("always, max_file_store: {bytes}"))
    }

    /// Starts a server that lets in clients with a certificate only. The folder has `server.crt`,
    /// `client.crt`, their keys, `ca.pem` with the authority of the server, and `clients.pem` with
    /// that of the clients.
    pub(crate) fn start_tls(folder: &Path) -> Self {
        Self::start_with(1, "always", Some(folder))
    }

    fn start_with(servers: usize, sync: &str, tls: Option<&Path>) -> Self {
        let routes: Vec<ReservedPort> = (0..servers).map(|_| ReservedPort::new()).collect();
        let all: Vec<String> = routes
            .iter()
            .map(|route| format!("\"nats://{}\"", route.address))
            .collect();
        let of_server = |(index, route): (usize, &ReservedPort)| {
            let cluster = match servers {
                1 => String::new(),
                _ => format!(
                    // Clients know the addresses in their settings, and no others.
                    "cluster {{ name: c, listen: \"{}\", routes: [{}], no_advertise: true }}\n",
                    route.address,
                    all.join(", ")
                ),
            };
            let users = |name| format!("users: [{{ user: {name}, password: \"{PASSWORD}\" }}]");
            let accounts = format!(
                "accounts {{ APP {{ jetstream: enabled, {} }}, SYS {{ {} }} }}\nsystem_account: \
                 SYS\n",
                users("gridhook"),
                users("system")
            );
            let files = tls.map(|folder| {
                let [certificate, key, clients] = ["server.crt", "server.key", "clients.pem"]
                    .map(|name| folder.join(name).display().to_string());
                let files = format!(
                    "cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{clients}\""
                );
                format!("tls {{ {files}, verify: true, timeout: 30 }}\n")
            });
            let files = files.unwrap_or_default();
            Nats::with(
                &format!("server_name: n{index}\nmax_payload: 8MB\n{cluster}{accounts}{files}"),
                sync,
                tls,
            )
        };
        let mut cluster = Self(routes.iter().enumerate().map(of_server).collect());
        cluster.0.iter_mut().for_each(Nats::start);
        cluster.0.iter().for_each(Nats::wait);
        cluster
    }

    /// The addresses of all servers.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Nats::url).collect()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
