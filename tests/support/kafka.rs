//! Kafka's own broker, a cluster of one in KRaft mode, from the artifacts that Maven has. Clients
//! log in with a password, or with a token that nobody signed.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command},
    sync::Arc,
    time::Duration,
};

use rskafka::{
    client::{
        Client, ClientBuilder, Credentials, SaslConfig,
        partition::{PartitionClient, UnknownTopicHandling},
    },
    record::Record,
};

use super::{certificates::Authority, port::ReservedPort, server::wait_for};
use crate::sdk::packages::KAFKA;

/// The password of the user `gridhook`.
pub(crate) const PASSWORD: &str = "password-that-nobody-sees";

/// The largest batch of records that it takes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A virtual machine that starts on a machine with other work.
const START: Duration = Duration::from_secs(180);

/// A broker on ports that it keeps, also while it is down.
pub(crate) struct Kafka {
    folder: tempfile::TempDir,
    ports: [ReservedPort; 2],
    child: Option<Child>,
    runtime: tokio::runtime::Runtime,
    /// The authority that the test's client trusts, if the broker has TLS.
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Kafka {
    /// A broker that is not started yet.
    pub(crate) fn new() -> Self {
        Self::with(None, MESSAGE_BYTES_MAX, None)
    }

    /// A broker that clients reach only at this address, which forwards their connections.
    pub(crate) fn behind(proxy: SocketAddr) -> Self {
        Self::with(None, MESSAGE_BYTES_MAX, Some(proxy))
    }

    /// A broker with default limits.
    pub(crate) fn usual() -> Self {
        Self::with(None, 1024 * 1024, None)
    }

    /// Makes a broker with TLS and a certificate of this authority.
    pub(crate) fn secure(authority: &Authority) -> Self {
        Self::with(Some(authority), MESSAGE_BYTES_MAX, None)
    }

    fn with(
        authority: Option<&Authority>,
        message_bytes_max: usize,
        proxy: Option<SocketAddr>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let ports = [(), ()].map(|()| ReservedPort::new());
        let folder = tempfile::tempdir().expect("a folder");
        let tls = authority.map(Authority::client);
        let kafka = Self {
            folder,
            ports,
            child: None,
            runtime,
            tls,
        };
        if let Some(authority) = authority {
            let issued = authority.issue("127.0.0.1");
            let pem = issued.key.serialize_pem() + &issued.pem + &authority.pem();
            fs::write(kafka.folder.path().join("broker.pem"), pem).expect("written");
            fs::write(kafka.folder.path().join("ca.pem"), authority.pem()).expect("written");
        }
        let properties =
            kafka.properties(message_bytes_max, proxy.unwrap_or(kafka.ports[0].address));
        fs::write(kafka.settings(), properties).expect("settings");
        let mut format = kafka.java("kafka.tools.StorageTool");
        format
            .args(["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"])
            .arg(kafka.settings());
        let output = format.output().expect("java starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        kafka
    }

    /// The address of the broker.
    pub(crate) fn address(&self) -> SocketAddr {
        self.ports[0].address
    }

    /// Starts the broker with the data that it had.
    pub(crate) fn resume(&mut self) {
        let log = File::create(self.folder.path().join("log")).expect("a log");
        let mut java = self.java("kafka.Kafka");
        let command = java
            .arg(self.settings())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        self.child = Some(command.spawn().expect("java starts"));
        wait_for("Kafka to answer", START, || {
            let client = self.client();
            self.runtime.block_on(async {
                let asked = async { client.await?.list_topics().await };
                matches!(
                    tokio::time::timeout(Duration::from_secs(5), asked).await,
                    Ok(Ok(_))
                )
            })
        });
    }

    /// Kills the broker with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a broker that runs");
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
    }

    pub(crate) fn create(&self, topic: &str, partitions: i32) {
        let client = self.client();
        self.runtime.block_on(async {
            let client = client.await.expect("a client");
            let controller = client.controller_client().expect("a controller");
            controller
                .create_topic(topic, partitions, 1, 30_000)
                .await
                .expect("a topic is made");
        });
    }

    /// The records of a partition from this offset on, and the next offset.
    pub(crate) fn records(&self, topic: &str, partition: i32, from: i64) -> (Vec<Record>, i64) {
        let client = self.client();
        self.runtime.block_on(async {
            let client = client.await.expect("a client");
            let open = client.partition_client(topic, partition, UnknownTopicHandling::Retry);
            let partition: PartitionClient = open.await.expect("a partition");
            let mut records = Vec::new();
            let mut next = from;
            loop {
                let (found, end) = partition
                    .fetch_records(next, 1..10_000_000, 100)
                    .await
                    .expect("records");
                for record in found {
                    next = record.offset + 1;
                    records.push(record.record);
                }
                if next >= end {
                    return (records, next);
                }
            }
        })
    }

    fn client(&self) -> impl Future<Output = rskafka::client::error::Result<Client>> + use<> {
        let login = SaslConfig::Plain(Credentials::new("gridhook".to_owned(), PASSWORD.to_owned()));
        let builder = ClientBuilder::new(vec![self.address().to_string()]).sasl_config(login);
        match &self.tls {
            Some(tls) => builder.tls_config(Arc::clone(tls)).build(),
            None => builder.build(),
        }
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("server.properties")
    }

    fn java(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command.args(["-Xmx384m", "-cp", &format!("{}/*", KAFKA.display()), class]);
        command
    }

    fn properties(&self, message_bytes_max: usize, advertised: SocketAddr) -> String {
        let [folder, pem, ca] =
            ["data", "broker.pem", "ca.pem"].map(|name| self.folder.path().join(name));
        let (protocol, tls) = match &self.tls {
            None => ("SASL_PLAINTEXT", String::new()),
            Some(_) => (
                "SASL_SSL",
                format!(
                    "ssl.keystore.type=PEM\nssl.keystore.location={}\nssl.truststore.type=PEM\nssl.truststore.location={}\n",
                    pem.display(),
                    ca.display()
                ),
            ),
        };
        let [clients, controller] = self.ports.each_ref().map(|port| port.address);
        let login = format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required \
             username=\"gridhook\" password=\"{PASSWORD}\" user_gridhook=\"{PASSWORD}\";"
        );
        let bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
            unsecuredLoginStringClaim_sub=\"broker\";";
        format!(
            "process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.voters=1@{controller}\n\
             listeners=CLIENTS://{clients},CONTROLLER://{controller}\n\
             advertised.listeners=CLIENTS://{advertised}\n\
             listener.security.protocol.map=CLIENTS:{protocol},CONTROLLER:PLAINTEXT\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=CLIENTS\n\
             sasl.enabled.mechanisms=PLAIN,OAUTHBEARER\nsasl.mechanism.inter.broker.protocol=PLAIN\n\
             listener.name.clients.plain.sasl.jaas.config={login}\n\
             listener.name.clients.oauthbearer.sasl.jaas.config={bearer}\n\
             log.dirs={}\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\nauto.create.topics.enable=false\nmessage.max.bytes={message_bytes_max}\n{tls}",
            folder.display()
        )
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
