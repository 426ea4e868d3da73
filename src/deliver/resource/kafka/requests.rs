//! The requests of a producer, besides those that every connection begins with.

use super::{
    protocol::{Api, BrokerError, NULL_STRING, Reader, Request, Truncated, put_string},
    wire::ProducerId,
};
use std::time::Duration;

/// `acks` of a request whose response comes when all replicas in sync have its records.
const ALL_REPLICAS: i16 = -1;

/// How long the leader waits for the other replicas, in milliseconds.
const REPLICAS_TIMEOUT: i32 = 30_000;

/// The length of an array with one item.
const ONE: i32 = 1;

/// Names the mechanism of a login.
pub(super) struct SaslHandshake {
    pub(super) mechanism: &'static str,
}

/// Whether the broker has the mechanism, and those that it has.
pub(super) struct SaslMechanisms {
    pub(super) error: Option<BrokerError>,
    pub(super) names: Vec<String>,
}

impl Request for SaslHandshake {
    type Response = SaslMechanisms;
    // Version 0 is for logins outside of the protocol's framing.
    const API: Api = Api {
        key: 17,
        name: "SaslHandshake",
        versions: 1..=1,
    };

    fn write(&self, _: i16, out: &mut Vec<u8>) {
        put_string(out, self.mechanism);
    }

    fn read_response(_: i16, response: &mut Reader<'_>) -> Result<SaslMechanisms, Truncated> {
        Ok(SaslMechanisms {
            error: response.read_error()?,
            names: response.read_array(Reader::read_string)?,
        })
    }
}

/// The client's message of a login.
pub(super) struct SaslAuthenticate {
    pub(super) message: Vec<u8>,
}

/// The broker's reply to a login.
pub(super) struct SaslReply {
    pub(super) error: Option<BrokerError>,
    pub(super) error_message: String,
    /// The last message of the mechanism; OAUTHBEARER refuses a token here.
    pub(super) message: Vec<u8>,
}

impl Request for SaslAuthenticate {
    type Response = SaslReply;
    const API: Api = Api {
        key: 36,
        name: "SaslAuthenticate",
        versions: 0..=1,
    };

    fn write(&self, _: i16, out: &mut Vec<u8>) {
        out.extend((self.message.len() as i32).to_be_bytes());
        out.extend(&self.message);
    }

    fn read_response(_: i16, response: &mut Reader<'_>) -> Result<SaslReply, Truncated> {
        Ok(SaslReply {
            error: response.read_error()?,
            error_message: response.read_string()?,
            message: response.read_bytes()?.to_vec(),
        })
    }
}

/// Asks for the partitions of a topic, and for the brokers.
pub(super) struct Metadata<'a> {
    pub(super) topic: &'a str,
}

/// The brokers, and a topic if it exists.
pub(super) struct ClusterMetadata {
    pub(super) brokers: Vec<BrokerAddress>,
    pub(super) topics: Vec<TopicMetadata>,
}

pub(super) struct BrokerAddress {
    pub(super) id: i32,
    pub(super) host: String,
    pub(super) port: i32,
}

pub(super) struct TopicMetadata {
    pub(super) error: Option<BrokerError>,
    pub(super) partitions: Vec<Partition>,
}

#[derive(Clone, Copy)]
pub(super) struct Partition {
    pub(super) id: i32,
    /// The broker that takes the partition's records.
    pub(super) leader: i32,
}

impl Request for Metadata<'_> {
    type Response = ClusterMetadata;
    // From version 4 on, a request can say that no topic is to be made.
    const API: Api = Api {
        key: 3,
        name: "Metadata",
        versions: 1..=4,
    };

    fn write(&self, version: i16, out: &mut Vec<u8>) {
        out.extend(ONE.to_be_bytes());
        put_string(out, self.topic);
        if version >= 4 {
            out.push(u8::from(false));
        }
    }

    fn read_response(
        version: i16,
        response: &mut Reader<'_>,
    ) -> Result<ClusterMetadata, Truncated> {
        if version >= 3 {
            let _throttle = response.read_i32()?;
        }
        let brokers = response.read_array(|broker| {
            let address = BrokerAddress {
                id: broker.read_i32()?,
                host: broker.read_string()?,
                port: broker.read_i32()?,
            };
            let _rack = broker.read_string()?;
            Ok(address)
        })?;
        if version >= 2 {
            let _cluster_id = response.read_string()?;
        }
        let _controller = response.read_i32()?;
        let topics = response.read_array(read_topic)?;
        Ok(ClusterMetadata { brokers, topics })
    }
}

fn read_topic(response: &mut Reader<'_>) -> Result<TopicMetadata, Truncated> {
    let error = response.read_error()?;
    let _name = response.read_string()?;
    let _is_internal = response.read::<1>()?;
    let partitions = response.read_array(|partition| {
        let _error = partition.read_error()?;
        let id = partition.read_i32()?;
        let leader = partition.read_i32()?;
        let _replicas = partition.read_array(Reader::read_i32)?;
        let _in_sync = partition.read_array(Reader::read_i32)?;
        Ok(Partition { id, leader })
    })?;
    Ok(TopicMetadata { error, partitions })
}

/// Asks for a producer id, without a transaction.
pub(super) struct InitProducerId;

impl Request for InitProducerId {
    type Response = Result<ProducerId, BrokerError>;
    const API: Api = Api {
        key: 22,
        name: "InitProducerId",
        versions: 0..=1,
    };

    fn write(&self, _: i16, out: &mut Vec<u8>) {
        out.extend(NULL_STRING.to_be_bytes());
        // The time limit of a transaction. There is none.
        out.extend(i32::MAX.to_be_bytes());
    }

    fn read_response(_: i16, response: &mut Reader<'_>) -> Result<Self::Response, Truncated> {
        let _throttle = response.read_i32()?;
        let error = response.read_error()?;
        let producer = ProducerId {
            id: response.read_i64()?,
            epoch: response.read_i16()?,
        };
        Ok(error.map_or(Ok(producer), Err))
    }
}

/// Adds records to a partition.
pub(super) struct Produce<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) batch: &'a [u8],
}

/// The result for the records of a request.
pub(super) struct Produced {
    /// The error of the partition; absent if the response has none.
    pub(super) partition: Option<Option<BrokerError>>,
    /// How long the broker accepts no other request.
    pub(super) throttle: Duration,
}

impl Request for Produce<'_> {
    type Response = Produced;
    // From the first version with these records to the last whose response has the same fields.
    const API: Api = Api {
        key: 0,
        name: "Produce",
        versions: 3..=7,
    };

    fn write(&self, _: i16, out: &mut Vec<u8>) {
        out.reserve_exact(32 + self.topic.len() + self.batch.len());
        out.extend(NULL_STRING.to_be_bytes());
        out.extend(ALL_REPLICAS.to_be_bytes());
        out.extend(REPLICAS_TIMEOUT.to_be_bytes());
        out.extend(ONE.to_be_bytes());
        put_string(out, self.topic);
        out.extend(ONE.to_be_bytes());
        out.extend(self.partition.to_be_bytes());
        out.extend((self.batch.len() as i32).to_be_bytes());
        out.extend(self.batch);
    }

    fn read_response(version: i16, response: &mut Reader<'_>) -> Result<Produced, Truncated> {
        let topics = response.read_array(|topic| {
            let _name = topic.read_string()?;
            topic.read_array(|partition| read_partition(version, partition))
        })?;
        let throttle =
            Duration::from_millis(u64::try_from(response.read_i32()?).unwrap_or_default());
        Ok(Produced {
            partition: topics.into_iter().flatten().next(),
            throttle,
        })
    }
}

fn read_partition(
    version: i16,
    response: &mut Reader<'_>,
) -> Result<Option<BrokerError>, Truncated> {
    let _index = response.read_i32()?;
    let error = response.read_error()?;
    let _base_offset = response.read_i64()?;
    let _append_time = response.read_i64()?;
    if version >= 5 {
        let _first_offset = response.read_i64()?;
    }
    Ok(error)
}
