//! RabbitMQ from Debian, a node on ports that it keeps, also while it is down. Clients log in with
//! a password.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{port::ReservedPort, server::wait_for};

/// The server itself: Debian's wrapper insists on a user.
pub(crate) const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// The password of the user `gridhook`.
pub(crate) const PASSWORD: &str = "password-that-nobody-sees";

/// The largest message that the node takes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A virtual machine that starts on a machine with other work.
const START: Duration = Duration::from_secs(180);

/// A process of a RabbitMQ node.
pub(crate) struct RabbitMq {
    folder: tempfile::TempDir,
    /// The ports for clients, for other nodes, and of the daemon that names nodes.
    ports: [ReservedPort; 3],
    names: Child,
    child: Option<Child>,
    runtime: tokio::runtime::Runtime,
}

/// The properties and the body of a message.
pub(crate) type Message = (BasicProperties, Vec<u8>);

impl RabbitMq {
    /// A server that is not started yet.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ports = [(), (), ()].map(|()| ReservedPort::new());
        let settings = format!(
            "listeners.tcp.1 = {}\ndefault_user = gridhook\ndefault_pass = {PASSWORD}\n\
             max_message_size = {MESSAGE_BYTES_MAX}\nlog.console = true\nlog.file = false\n\
             disk_free_limit.absolute = 1MB\n",
            ports[0].address
        );
        fs::write(folder.path().join("rabbitmq.conf"), settings).expect("settings");
        fs::write(folder.path().join("plugins"), "[].").expect("a list of plugins");
        let mut names = Command::new("epmd");
        names.args([
            "-address",
            "127.0.0.1",
            "-port",
            &ports[2].address.port().to_string(),
        ]);
        let names = names.stdin(Stdio::null()).spawn().expect("epmd starts");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        Self {
            folder,
            ports,
            names,
            child: None,
            runtime: runtime.expect("a runtime"),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://{}", self.ports[0].address)
    }

    /// Starts the node with the data that it had.
    pub(crate) fn resume(&mut self) {
        let path = |name: &str| self.folder.path().join(name);
        let log = File::create(path("log")).expect("a log");
        let mut command = Command::new(PROGRAM);
        command
            .env("HOME", self.folder.path())
            .env("ERL_EPMD_PORT", self.ports[2].address.port().to_string())
            .env("RABBITMQ_NODENAME", "gridhook@localhost")
            .env(
                "RABBITMQ_DIST_PORT",
                self.ports[1].address.port().to_string(),
            )
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .env("RABBITMQ_MNESIA_BASE", path("data"))
            .env("RABBITMQ_LOG_BASE", path("logs"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            // The program is a script, and the node its child.
            .process_group(0);
        self.child = Some(command.spawn().expect("it starts"));
        // A node that starts may accept a connection and never respond on it.
        wait_for("RabbitMQ to answer", START, || {
            self.runtime.block_on(async {
                matches!(
                    tokio::time::timeout(Duration::from_secs(5), self.channel()).await,
                    Ok(Ok(_))
                )
            })
        });
    }

    /// Kills the node with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a node that runs");
        kill_process_group(Pid::from_child(&child), Signal::KILL).expect("a signal is sent");
        child.wait().expect("it has ended");
    }

    /// Creates a durable queue, and waits until it is on disk: RabbitMQ confirms it up to two
    /// seconds earlier, and a kill would lose it.
    pub(crate) fn create(&self, name: &str) {
        self.runtime.block_on(async {
            let (_connection, channel) = self.channel().await.expect("a channel");
            let options = QueueDeclareOptions {
                durable: true,
                ..QueueDeclareOptions::default()
            };
            channel
                .queue_declare(name.into(), options, FieldTable::default())
                .await
                .expect("a queue is made");
        });
        let data = self.folder.path().join("data/gridhook@localhost");
        wait_for("the queue to be on disk", START, || {
            let files = fs::read_dir(&data)
                .expect("a folder")
                .map(|entry| entry.expect("an entry").path());
            // Files that the node replaces may be gone.
            files
                .filter_map(|file| fs::read(file).ok())
                .any(|file| memchr::memmem::find(&file, name.as_bytes()).is_some())
        });
    }

    /// Binds a queue to an exchange.
    pub(crate) fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        self.runtime.block_on(async {
            let (_connection, channel) = self.channel().await.expect("a channel");
            let queue = queue.into();
            let exchange = exchange.into();
            let key = routing_key.into();
            let bound = channel.queue_bind(
                queue,
                exchange,
                key,
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            bound.await.expect("a queue is bound");
        });
    }

    /// Takes all messages out of a queue.
    pub(crate) fn messages(&self, queue: &str) -> Vec<Message> {
        self.runtime.block_on(async {
            let (_connection, channel) = self.channel().await.expect("a channel");
            let mut messages = Vec::new();
            let take = BasicGetOptions { no_ack: true };
            while let Some(message) = channel
                .basic_get(queue.into(), take)
                .await
                .expect("a response")
            {
                messages.push((message.delivery.properties, message.delivery.data));
            }
            messages
        })
    }

    async fn channel(&self) -> lapin::Result<(Connection, Channel)> {
        let url = format!("amqp://gridhook:{PASSWORD}@{}", self.ports[0].address);
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
            child.wait().ok();
        }
        self.names.kill().ok();
        self.names.wait().ok();
    }
}
