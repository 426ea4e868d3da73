//! The memory for bodies: the share of one sender, and what others keep.

use std::net::{IpAddr, Ipv4Addr};

use gridhook::{
    event::PartitionId,
    publish::in_flight_bytes::{Full, InFlightBytes, Permit, Request},
};
use proptest::prelude::*;

const MIB: usize = 1 << 20;

/// The default: 64 MiB for requests of 1.5 MB.
const BYTES: usize = 64 * MIB;
const REQUEST: usize = 1_536_000;

fn address(number: u8) -> Option<IpAddr> {
    Some(Ipv4Addr::new(10, 0, 0, number).into())
}

fn new_request(topic: u32, from: u8) -> Request {
    Request::new(None, PartitionId(topic), address(from))
}

/// As many as find room, of this size each.
fn fill(room: &std::sync::Arc<InFlightBytes>, request: &Request, bytes: usize) -> Vec<Permit> {
    std::iter::from_fn(|| room.reserve_bytes(request.clone(), bytes).ok())
        .take(10_000)
        .collect()
}

fn held(room: &InFlightBytes, permits: &[Permit]) -> usize {
    assert!(room.bytes_in_flight() <= room.bytes_max());
    permits.len()
}

#[test]
fn a_topic_leaves_half_and_an_address_a_quarter_of_that() {
    let room = InFlightBytes::new(BYTES, REQUEST);
    let of_one = fill(&room, &new_request(1, 1), MIB);
    assert_eq!(held(&room, &of_one), 24, "three quarters of a half");
    // The same topic from other addresses, and then no more of it from anywhere.
    let of_two = fill(&room, &new_request(1, 2), MIB);
    let of_three = fill(&room, &new_request(1, 3), MIB);
    assert!(!of_two.is_empty() && !of_three.is_empty());
    assert!(of_one.len() + of_two.len() + of_three.len() <= 32);
    // Another topic, from an address that has much already.
    let other = fill(&room, &new_request(2, 1), MIB);
    assert!(other.len() >= 8, "{}", other.len());
    // All of it is released.
    drop((of_one, of_two, of_three, other));
    assert_eq!(room.bytes_in_flight(), 0);
    assert_eq!(fill(&room, &new_request(2, 1), MIB).len(), 24);
}

#[test]
fn the_topics_of_a_namespace_share_what_one_may_have() {
    let room = InFlightBytes::new(BYTES, REQUEST);
    let within = |topic| Request::new(Some("Plant"), PartitionId(topic), address(1));
    let permits: Vec<_> = (0..50)
        .flat_map(|topic| fill(&room, &within(topic), MIB))
        .collect();
    assert!(permits.len() <= 32, "{}", permits.len());
    let elsewhere = Request::new(Some("other"), PartitionId(100), address(1));
    assert!(!fill(&room, &elsewhere, REQUEST).is_empty());
    assert!(
        room.reserve_bytes(
            Request::new(Some("PLANT"), PartitionId(200), address(2)),
            4 * REQUEST
        )
        .is_err()
    );
}

#[test]
fn a_publisher_without_requests_may_send_one_of_the_largest_size() {
    // The room is no larger than one.
    let room = InFlightBytes::new(REQUEST, REQUEST);
    let alone = room
        .reserve_bytes(new_request(1, 1), REQUEST)
        .expect("there is room for one");
    assert_eq!(
        room.reserve_bytes(new_request(2, 2), 1).map(drop),
        Err(Full)
    );
    drop(alone);
    assert!(
        room.reserve_bytes(Request::new(Some("n"), PartitionId(1), None), REQUEST)
            .is_ok()
    );
    assert_eq!(
        room.reserve_bytes(new_request(1, 1), REQUEST + 1).map(drop),
        Err(Full)
    );
}

#[test]
fn a_permit_grows_with_what_comes_and_gives_back_the_rest() {
    let room = InFlightBytes::new(BYTES, REQUEST);
    let mut permit = room
        .reserve_bytes(new_request(1, 1), 1_000)
        .expect("there is room");
    permit.grow_to(500).expect("it has them");
    permit.grow_to(5_000).expect("there is room");
    assert_eq!(room.bytes_in_flight(), 5_000);
    assert_eq!(permit.grow_to(BYTES), Err(Full));
    assert_eq!(
        room.bytes_in_flight(),
        5_000,
        "what there is no room for takes none"
    );
    permit.shrink_to(10);
    let other = room
        .reserve_bytes(new_request(1, 1), 0)
        .expect("nothing is reserved");
    assert_eq!(
        (
            room.bytes_in_flight(),
            other.could_grow_to(BYTES),
            other.could_grow_to(REQUEST)
        ),
        (10, false, true)
    );
    drop(permit);
    assert_eq!(room.bytes_in_flight(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_others_hold_a_newcomer_finds_room(
        requests in prop::collection::vec((0u32..4, 0u8..20, 1usize..2 * MIB), 1..400),
    ) {
        let room = InFlightBytes::new(BYTES, REQUEST);
        let mut permits = Vec::new();
        for (topic, from, bytes) in requests {
            permits.extend(room.reserve_bytes(new_request(topic, from), bytes));
            prop_assert!(room.bytes_in_flight() <= BYTES);
        }
        // Four topics leave at least a sixteenth, for any publisher.
        prop_assert!(room.reserve_bytes(new_request(100, 1), REQUEST).is_ok());
        permits.clear();
        prop_assert_eq!(room.bytes_in_flight(), 0);
    }
}
