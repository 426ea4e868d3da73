//! Servers that stand for object stores: Azurite for Azure Blob Storage, moto for S3, and an
//! endpoint of our own, [`Bucket`], for Google Cloud Storage.

use std::{
    fs::{self, File},
    net::SocketAddr,
    process::{Child, Command},
    time::Duration,
};

use gridhook::{
    dead_letter::{Sink, sink::CloudSettings},
    policy::dead_letter_store::{StoreAddress, StoreKind},
};

use super::{
    azurite::{self, ACCOUNT, Azurite, KEY},
    bucket::Bucket,
    http::Client,
    port::ReservedPort,
    server::wait_for,
};
use crate::sdk::packages::MOTO;

/// A key of Google's that asks for no token.
const SERVICE_ACCOUNT: &str =
    r#"{"private_key":"k","private_key_id":"i","client_email":"e","disable_oauth":true}"#;

/// An interpreter that starts on a machine with other work.
const START: Duration = Duration::from_secs(120);

/// A store of a cloud, on a port that it keeps.
pub(crate) struct Cloud {
    kind: StoreKind,
    azurite: Azurite,
    child: Option<Child>,
    bucket: Option<Bucket>,
    folder: tempfile::TempDir,
    /// Kept while the store is stopped.
    _port: ReservedPort,
    at: SocketAddr,
    address: String,
}

impl Cloud {
    /// Starts a server of buckets with a bucket `letters`. `address` is what the settings call it.
    pub(crate) fn start(address: &str) -> Self {
        let kind = StoreAddress::parse(address).expect("an address").kind;
        let folder = tempfile::tempdir().expect("a folder");
        let port = ReservedPort::new();
        let at = port.address;
        let address = address.to_owned();
        let azurite = Azurite::new("blob");
        let mut cloud = Self {
            kind,
            azurite,
            child: None,
            bucket: None,
            folder,
            _port: port,
            at,
            address,
        };
        cloud.resume();
        cloud
    }

    /// Starts the server again with the data that it had, except moto, which has nothing but an
    /// empty bucket.
    pub(crate) fn resume(&mut self) {
        if self.kind == StoreKind::Google {
            let bucket = self.bucket.get_or_insert_with(Bucket::new);
            bucket.resume();
            self.at = bucket.address();
            return;
        }
        if self.kind == StoreKind::Azure {
            self.azurite.resume();
            self.at = self.azurite.address();
            return self.make_bucket();
        }
        let port = self.at.port().to_string();
        let mut command = Command::new(&*MOTO);
        command.args(["-H", "127.0.0.1", "-p", &port]);
        let logs = ["out", "err"].map(|stream| self.folder.path().join(stream));
        let [out, err] = logs.each_ref().map(|log| File::create(log).expect("a log"));
        self.child = Some(command.stdout(out).stderr(err).spawn().expect("it starts"));
        let mut found = None;
        wait_for("the store to listen", START, || {
            found = azurite::listening(
                &logs
                    .each_ref()
                    .map(|log| fs::read_to_string(log).unwrap_or_default()),
            );
            found.is_some_and(|at| Client::new(at).ask("GET", "/", &[], b"").is_ok())
        });
        self.at = found.expect("it was waited for");
        self.make_bucket();
    }

    /// Ends the server, so that it can write its data first.
    pub(crate) fn stop(&mut self) {
        if self.kind == StoreKind::Azure {
            return self.azurite.stop();
        }
        if let Some(bucket) = &mut self.bucket {
            return bucket.stop();
        }
        let mut child = self.child.take().expect("a store that runs");
        let id = child.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &id])
            .status()
            .expect("a shell");
        assert!(sent.success(), "a signal is sent");
        wait_for("the store to end", START, || {
            child.try_wait().expect("a child is waited for").is_some()
        });
    }

    fn make_bucket(&self) {
        let response = match self.kind {
            StoreKind::Azure => {
                let (target, headers) =
                    azurite::sign("PUT", "letters", &[("restype", "container")]);
                let headers: Vec<(&str, &str)> = headers
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                Client::new(self.at).ask("PUT", &target, &headers, b"")
            }
            StoreKind::S3 | StoreKind::Google | StoreKind::Folder => {
                Client::new(self.at).ask("PUT", "/letters", &[], b"")
            }
        };
        let status = response.expect("a response").status;
        // 409: Azurite kept it.
        assert!(
            [200, 201, 409].contains(&status),
            "no bucket is made: {status}"
        );
    }

    fn endpoint(&self) -> String {
        match self.kind {
            StoreKind::Azure => format!("http://{}/{ACCOUNT}", self.at),
            StoreKind::S3 | StoreKind::Google | StoreKind::Folder => format!("http://{}", self.at),
        }
    }

    fn credentials(&self) -> Vec<(&'static str, String)> {
        let all: &[(&str, &str)] = match self.kind {
            StoreKind::Azure => &[("access_key", KEY)],
            StoreKind::Google => &[("service_account_key", SERVICE_ACCOUNT)],
            StoreKind::S3 | StoreKind::Folder => {
                &[("access_key_id", "key"), ("secret_access_key", "secret")]
            }
        };
        all.iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect()
    }

    /// The settings of a server for this store, under the name `cloud` and with the account
    /// `archive`.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let plain = [
            ("url", self.address.clone()),
            ("accounts", "archive".to_owned()),
            ("endpoint", self.endpoint()),
            ("allow_http", "true".to_owned()),
        ];
        let all = plain.into_iter().chain(self.credentials());
        all.map(|(name, value)| {
            (
                format!("DEAD_LETTER__STORES__CLOUD__{}", name.to_uppercase()),
                value,
            )
        })
        .collect()
    }

    /// The endpoint that stands for Google Cloud Storage.
    pub(crate) fn bucket(&self) -> &Bucket {
        self.bucket.as_ref().expect("a store of Google's")
    }

    /// The store, as the server sees it.
    pub(crate) fn sink(&self) -> Sink {
        let settings = CloudSettings {
            address: StoreAddress::parse(&self.address).expect("an address"),
            endpoint: Some(self.endpoint().parse().expect("an address")),
            region: None,
            allow_http: true,
            credentials: self.credentials(),
        };
        Sink::in_cloud(settings).expect("a store")
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
