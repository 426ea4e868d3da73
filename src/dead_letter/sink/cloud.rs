//! An object store of a cloud: S3, Azure Blob Storage, Google Cloud Storage, or a compatible one.
//!
//! Its address may end before the bucket (Azure: container). Then the first part of a file's name
//! is the bucket. Each bucket has a client of its own, created at the first use. There are at most
//! as many as subscriptions name.
//!
//! A request is retried once, for a broken connection. The caller retries other failures.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, path::Path,
};
use parking_lot::Mutex;
use url::Url;

use super::SinkError;
use gridhook_policy::dead_letter_store::{StoreAddress, StoreKind};

/// Time limit for name resolution, connection and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for a whole request: 16 MiB at little more than 1 Mbit/s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A bucket name to validate the settings with. No request is sent.
const TEST_BUCKET: &str = "bucket";

/// How an object store is reached.
#[derive(Clone)]
pub struct CloudSettings {
    pub address: StoreAddress,
    /// The server, if it is not the cloud's own.
    pub endpoint: Option<Url>,
    /// The region of the bucket.
    pub region: Option<String>,
    pub allow_http: bool,
    /// Credentials, by `object_store`'s names. Empty: credentials of the environment or the
    /// machine.
    pub credentials: Vec<(&'static str, String)>,
}

impl fmt::Debug for CloudSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Settings({}, {} credentials hidden)",
            self.address,
            self.credentials.len()
        )
    }
}

#[derive(Debug)]
pub(super) struct CloudSink {
    settings: CloudSettings,
    buckets: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

impl CloudSink {
    /// Sends no request: an unreachable store does not prevent a start. Invalid settings do.
    pub(super) fn open(settings: CloudSettings) -> Result<Self, SinkError> {
        // This program's own clients and `object_store` use ring for TLS. Fails if it is already
        // installed.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        settings.new_client(TEST_BUCKET)?;
        Ok(Self {
            settings,
            buckets: Mutex::default(),
        })
    }

    /// The client and the path for the file or folder `name`.
    pub(super) fn find_client(
        &self,
        name: &str,
    ) -> Result<(Arc<dyn ObjectStore>, Path), SinkError> {
        let (bucket, path) = self
            .split_bucket(name)
            .ok_or_else(|| SinkError::Name("the path names no bucket".to_owned()))?;
        let path = Path::parse(path).map_err(|error| SinkError::Name(error.to_string()))?;
        let mut buckets = self.buckets.lock();
        if let Some(client) = buckets.get(&bucket) {
            return Ok((Arc::clone(client), path));
        }
        let client = self.settings.new_client(&bucket)?;
        buckets.insert(bucket, Arc::clone(&client));
        Ok((client, path))
    }

    /// Whether a listing can begin after a name.
    pub(super) fn begins_anywhere(&self) -> bool {
        matches!(
            self.settings.address.kind,
            StoreKind::S3 | StoreKind::Google
        )
    }

    /// The bucket and the path in it.
    pub(super) fn split_bucket(&self, name: &str) -> Option<(String, String)> {
        let mut parts = self.settings.address.path.iter().map(String::as_str);
        let mut own = name.split('/').filter(|part| !part.is_empty());
        let bucket = parts.next().or_else(|| own.next())?.to_owned();
        Some((bucket, parts.chain(own).collect::<Vec<_>>().join("/")))
    }

    /// The name of the object `key` in the bucket of `folder`.
    pub(super) fn name_of(&self, folder: &str, key: &str) -> String {
        match self.settings.address.path.as_slice() {
            [] => format!("{}/{key}", folder.split('/').next().unwrap_or_default()),
            [_, prefix @ ..] => {
                let inside: usize = prefix.iter().map(|part| part.len() + 1).sum();
                key.get(inside..).unwrap_or_default().to_owned()
            }
        }
    }

    /// The URL of a file.
    pub(super) fn url(&self, name: &str) -> Option<String> {
        let (bucket, path) = self.split_bucket(name)?;
        let CloudSettings {
            address,
            endpoint,
            region,
            ..
        } = &self.settings;
        let base = match (endpoint, address.kind) {
            (Some(endpoint), _) => format!("{}/{bucket}", endpoint.as_str().trim_end_matches('/')),
            (None, StoreKind::Azure) => {
                format!("https://{}.blob.core.windows.net/{bucket}", address.account)
            }
            (None, StoreKind::Google) => format!("https://storage.googleapis.com/{bucket}"),
            (None, StoreKind::S3 | StoreKind::Folder) => {
                format!(
                    "https://{bucket}.s3.{}.amazonaws.com",
                    region.as_deref().unwrap_or("us-east-1")
                )
            }
        };
        let mut url = Url::parse(&base).ok()?;
        url.path_segments_mut()
            .ok()?
            .pop_if_empty()
            .extend(path.split('/'));
        Some(url.into())
    }
}

impl CloudSettings {
    fn new_client(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, SinkError> {
        let options = ClientOptions::new()
            .with_allow_http(self.allow_http)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_timeout(REQUEST_TIMEOUT);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                ..BackoffConfig::default()
            },
            max_retries: 1,
            retry_timeout: REQUEST_TIMEOUT,
        };
        let is_ambient = self.credentials.is_empty();
        let endpoint = self
            .endpoint
            .as_ref()
            .map(|endpoint| endpoint.as_str().trim_end_matches('/'));
        Ok(match self.address.kind {
            StoreKind::Folder => {
                return Err(SinkError::Name(format!(
                    "{} is a folder, not an object store of a cloud",
                    self.address
                )));
            }
            StoreKind::S3 => {
                let mut to = if is_ambient {
                    AmazonS3Builder::from_env()
                } else {
                    AmazonS3Builder::new()
                };
                for (name, value) in &self.credentials {
                    to = to.with_config(name.parse()?, value);
                }
                to = endpoint
                    .into_iter()
                    .fold(to, AmazonS3Builder::with_endpoint);
                to = self.region.iter().fold(to, AmazonS3Builder::with_region);
                to = to
                    .with_client_options(options)
                    .with_retry(retry)
                    .with_allow_http(self.allow_http);
                Arc::new(to.with_bucket_name(bucket).build()?)
            }
            StoreKind::Azure => {
                let mut to = if is_ambient {
                    MicrosoftAzureBuilder::from_env()
                } else {
                    MicrosoftAzureBuilder::new()
                };
                for (name, value) in &self.credentials {
                    to = to.with_config(name.parse()?, value);
                }
                to = endpoint
                    .into_iter()
                    .fold(to, |to, endpoint| to.with_endpoint(endpoint.to_owned()));
                to = to
                    .with_client_options(options)
                    .with_retry(retry)
                    .with_allow_http(self.allow_http);
                Arc::new(
                    to.with_account(&self.address.account)
                        .with_container_name(bucket)
                        .build()?,
                )
            }
            StoreKind::Google => {
                let mut to = if is_ambient {
                    GoogleCloudStorageBuilder::from_env()
                } else {
                    GoogleCloudStorageBuilder::new()
                };
                for (name, value) in &self.credentials {
                    to = to.with_config(name.parse()?, value);
                }
                to = endpoint
                    .into_iter()
                    .fold(to, GoogleCloudStorageBuilder::with_base_url);
                Arc::new(
                    to.with_client_options(options)
                        .with_retry(retry)
                        .with_bucket_name(bucket)
                        .build()?,
                )
            }
        })
    }
}
