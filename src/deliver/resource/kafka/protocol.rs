//! A connection to a Kafka broker: requests and their responses, in the framing of Kafka's protocol
//! guide (<https://kafka.apache.org/protocol>), in versions before "flexible" ones.
//!
//! Requests follow one another on a connection without waiting; the correlation id says which a
//! response belongs to. A request whose caller no longer waits is written and read to its end, so
//! that the others stay intact.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    ops::RangeInclusive,
    rc::Rc,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// The largest response: 16 MiB. The description of a topic has some hundred bytes a partition.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The name that brokers have in their logs and quotas.
const CLIENT_ID: &str = "gridhook";

/// The length of a string that is absent.
pub(super) const NULL_STRING: i16 = -1;

macro_rules! broker_errors {
    ($($code:literal $name:ident),* $(,)?) => {
        /// An error code in a response, by the name that the protocol guide has for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum BrokerError {
            $($name,)*
            /// A code that is handled like any unknown one.
            Other(i16),
        }

        impl BrokerError {
            fn from_code(code: i16) -> Option<Self> {
                match code {
                    0 => None,
                    $($code => Some(Self::$name),)*
                    other => Some(Self::Other(other)),
                }
            }
        }
    };
}

broker_errors! {
    -1 UnknownServerError,
    2 CorruptMessage,
    3 UnknownTopicOrPartition,
    5 LeaderNotAvailable,
    6 NotLeaderOrFollower,
    7 RequestTimedOut,
    8 BrokerNotAvailable,
    9 ReplicaNotAvailable,
    10 MessageTooLarge,
    13 NetworkException,
    14 CoordinatorLoadInProgress,
    15 CoordinatorNotAvailable,
    16 NotCoordinator,
    17 InvalidTopicException,
    18 RecordListTooLarge,
    19 NotEnoughReplicas,
    20 NotEnoughReplicasAfterAppend,
    29 TopicAuthorizationFailed,
    31 ClusterAuthorizationFailed,
    33 UnsupportedSaslMechanism,
    34 IllegalSaslState,
    45 OutOfOrderSequenceNumber,
    46 DuplicateSequenceNumber,
    47 InvalidProducerEpoch,
    49 InvalidProducerIdMapping,
    56 KafkaStorageError,
    58 SaslAuthenticationFailed,
    59 UnknownProducerId,
    74 FencedLeaderEpoch,
    75 UnknownLeaderEpoch,
    78 OffsetNotAvailable,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the connection has ended: {0}")]
    Ended(String),
    #[error("the broker has no version of {0} that this client has")]
    NoVersion(&'static str),
    #[error("the response to {0} is malformed")]
    Malformed(&'static str),
}

pub(super) struct Api {
    pub(super) key: i16,
    pub(super) name: &'static str,
    /// The versions that this client writes and reads.
    pub(super) versions: RangeInclusive<i16>,
}

/// A request without its header.
pub(super) trait Request {
    type Response;
    const API: Api;

    fn write(&self, version: i16, out: &mut Vec<u8>);

    /// Reads the body of a response. What follows it is not looked at.
    fn read_response(version: i16, response: &mut Reader<'_>) -> Result<Self::Response, Truncated>;
}

/// Appends a string with its length.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as i16).to_be_bytes());
    out.extend(text.as_bytes());
}

/// A response ends before its last field, or a length in it is negative.
#[derive(Debug)]
pub(super) struct Truncated;

/// The rest of a response.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn read<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn read_i16(&mut self) -> Result<i16, Truncated> {
        Ok(i16::from_be_bytes(self.read()?))
    }

    pub(super) fn read_i32(&mut self) -> Result<i32, Truncated> {
        Ok(i32::from_be_bytes(self.read()?))
    }

    pub(super) fn read_i64(&mut self) -> Result<i64, Truncated> {
        Ok(i64::from_be_bytes(self.read()?))
    }

    pub(super) fn read_error(&mut self) -> Result<Option<BrokerError>, Truncated> {
        Ok(BrokerError::from_code(self.read_i16()?))
    }

    /// A string; an absent one is empty.
    pub(super) fn read_string(&mut self) -> Result<String, Truncated> {
        match self.read_i16()? {
            NULL_STRING => Ok(String::new()),
            length => Ok(String::from_utf8_lossy(self.take_bytes(length.into())?).into_owned()),
        }
    }

    pub(super) fn read_bytes(&mut self) -> Result<&'a [u8], Truncated> {
        let length = self.read_i32()?;
        self.take_bytes(length)
    }

    /// An array; an absent one is empty.
    pub(super) fn read_array<T>(
        &mut self,
        mut read_item: impl FnMut(&mut Self) -> Result<T, Truncated>,
    ) -> Result<Vec<T>, Truncated> {
        // Not reserved: a length is only a claim until its items were read.
        let mut items = Vec::new();
        for _ in 0..self.read_i32()?.max(0) {
            items.push(read_item(self)?);
        }
        Ok(items)
    }

    fn take_bytes(&mut self, length: i32) -> Result<&'a [u8], Truncated> {
        let length = usize::try_from(length).map_err(|_| Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Asks for the versions that the broker has, by the keys of the requests.
struct ApiVersions;

impl Request for ApiVersions {
    type Response = HashMap<i16, RangeInclusive<i16>>;
    const API: Api = Api {
        key: 18,
        name: "ApiVersions",
        versions: 0..=0,
    };

    fn write(&self, _: i16, _: &mut Vec<u8>) {}

    fn read_response(_: i16, response: &mut Reader<'_>) -> Result<Self::Response, Truncated> {
        // A broker without this version returns an error with the list of its versions (KIP-511).
        let _error = response.read_error()?;
        let ranges = response
            .read_array(|range| Ok((range.read_i16()?, range.read_i16()?..=range.read_i16()?)))?;
        Ok(ranges.into_iter().collect())
    }
}

/// Requests without a response yet.
enum Pending {
    Open(HashMap<i32, oneshot::Sender<Vec<u8>>>),
    /// The connection has ended, and why.
    Ended(String),
}

impl Pending {
    fn end_all(&mut self, cause: &ProtocolError) {
        // Every caller that waits for a response sees its sender dropped.
        *self = Self::Ended(cause.to_string());
    }

    fn end_cause(&self) -> ProtocolError {
        match self {
            Self::Open(_) => ProtocolError::Ended("it was closed".to_owned()),
            Self::Ended(cause) => ProtocolError::Ended(cause.clone()),
        }
    }
}

/// A connection to a broker. It is closed when this is dropped.
pub(super) struct Link {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    pending: Rc<RefCell<Pending>>,
    next_id: Cell<i32>,
    versions: HashMap<i16, RangeInclusive<i16>>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        // The task may wait for a broker that reads nothing.
        self.task.abort();
    }
}

impl Link {
    /// Opens a connection over this stream: requests the API versions of the broker.
    pub(super) async fn open(
        stream: impl AsyncRead + AsyncWrite + 'static,
    ) -> Result<Self, ProtocolError> {
        let (frames, queue) = mpsc::unbounded_channel();
        let pending = Rc::new(RefCell::new(Pending::Open(HashMap::new())));
        let task = actix_rt::spawn(run_connection(stream, queue, Rc::clone(&pending)));
        let first = HashMap::from([(ApiVersions::API.key, ApiVersions::API.versions)]);
        let mut link = Self {
            frames,
            pending,
            next_id: Cell::new(0),
            versions: first,
            task,
        };
        link.versions = link.send_request(ApiVersions).await?;
        Ok(link)
    }

    /// Sends a request in the newest version that both have, and waits for its response.
    pub(super) async fn send_request<R: Request>(
        &self,
        request: R,
    ) -> Result<R::Response, ProtocolError> {
        let api = R::API;
        let version = self
            .common_version(&api)
            .ok_or(ProtocolError::NoVersion(api.name))?;
        let id = self.next_id();
        let (sender, receiver) = oneshot::channel();
        match &mut *self.pending.borrow_mut() {
            Pending::Open(waiting) => waiting.insert(id, sender),
            ended @ Pending::Ended(_) => return Err(ended.end_cause()),
        };
        // The task that takes it may have ended; then it has dropped the sender of the response.
        self.frames
            .send(encode_frame(&api, version, id, &request))
            .ok();
        let response = receiver
            .await
            .map_err(|_| self.pending.borrow().end_cause())?;
        R::read_response(version, &mut Reader(&response))
            .map_err(|Truncated| ProtocolError::Malformed(api.name))
    }

    fn common_version(&self, api: &Api) -> Option<i16> {
        let theirs = self.versions.get(&api.key)?;
        let newest = *theirs.end().min(api.versions.end());
        (theirs.contains(&newest) && api.versions.contains(&newest)).then_some(newest)
    }

    fn next_id(&self) -> i32 {
        self.next_id.replace(self.next_id.get().wrapping_add(1))
    }
}

/// A request with its length and header (version 1).
fn encode_frame<R: Request>(api: &Api, version: i16, id: i32, request: &R) -> Vec<u8> {
    let mut frame = vec![0; size_of::<i32>()];
    frame.extend(api.key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(id.to_be_bytes());
    put_string(&mut frame, CLIENT_ID);
    request.write(version, &mut frame);
    let length = (frame.len() - size_of::<i32>()) as i32;
    frame[..size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Writes requests and reads responses until the connection ends.
async fn run_connection(
    stream: impl AsyncRead + AsyncWrite,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    pending: Rc<RefCell<Pending>>,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let write = async {
        while let Some(frame) = queue.recv().await {
            writer.write_all(&frame).await?;
            writer.flush().await?;
        }
        Ok(())
    };
    let end = tokio::select! {
        ended = write => ended,
        ended = read_responses(BufReader::new(reader), &pending) => ended,
    };
    if let Err(error) = end {
        pending.borrow_mut().end_all(&error);
    }
}

async fn read_responses(
    mut reader: impl AsyncRead + Unpin,
    pending: &RefCell<Pending>,
) -> Result<(), ProtocolError> {
    loop {
        let length = usize::try_from(reader.read_i32().await?).unwrap_or(usize::MAX);
        if !(size_of::<i32>()..=RESPONSE_BYTES_MAX).contains(&length) {
            let problem = format!(
                "the broker sent a response of {length} bytes; at most {RESPONSE_BYTES_MAX} are \
                 read"
            );
            return Err(ProtocolError::Ended(problem));
        }
        let id = reader.read_i32().await?;
        let mut response = vec![0; length - size_of::<i32>()];
        reader.read_exact(&mut response).await?;
        let Pending::Open(waiting) = &mut *pending.borrow_mut() else {
            return Ok(());
        };
        let Some(sender) = waiting.remove(&id) else {
            return Err(ProtocolError::Ended(format!(
                "the broker sent a response to no request ({id})"
            )));
        };
        // The request may have been given up.
        sender.send(response).ok();
    }
}
