use std::ops::Range;

use gridhook::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    policy::record::ExcerptKey,
    store::{
        Family,
        keys::{self, KeyKind, LineKey, MetaKind},
        records::IdDigest,
    },
};
use proptest::prelude::*;

/// Mostly small numbers, so that fields are often equal or adjacent; and the extremes.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..4, 1 => 254u64..258, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn partition() -> impl Strategy<Value = PartitionId> {
    number().prop_map(|number| PartitionId(number as u32))
}

fn subscription() -> impl Strategy<Value = SubscriptionId> {
    number().prop_map(|number| SubscriptionId(number as u32))
}

fn subscription_key() -> impl Strategy<Value = SubscriptionKey> {
    (partition(), subscription()).prop_map(|(partition, subscription)| SubscriptionKey {
        partition,
        subscription,
    })
}

fn lane() -> impl Strategy<Value = Lane> {
    number().prop_map(|number| Lane(number as u16))
}

fn seq() -> impl Strategy<Value = Seq> {
    number().prop_map(Seq)
}

fn at() -> impl Strategy<Value = Timestamp> {
    number().prop_map(Timestamp)
}

fn within(range: &Range<Vec<u8>>, key: &[u8]) -> bool {
    (&range.start[..]..&range.end[..]).contains(&key)
}

proptest! {
    #[test]
    fn keys_of_the_log_are_read_back_and_sort_as_their_fields(a in (partition(), seq()), b in (partition(), seq())) {
        let x = keys::log(a.0, a.1);
        let y = keys::log(b.0, b.1);
        prop_assert_eq!(keys::parse_log(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::log_of(b.0), &x), a.0 == b.0);
        prop_assert_eq!(within(&keys::log_below(b.0, b.1), &x), a.0 == b.0 && a.1 < b.1);
    }

    #[test]
    fn keys_of_cursors_are_read_back_and_sort_as_their_fields(a in subscription_key(), b in subscription_key()) {
        let x = keys::cursor(a);
        let y = keys::cursor(b);
        prop_assert_eq!(keys::parse_cursor(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert!(within(&keys::cursors_range(), &x));
    }

    #[test]
    fn keys_of_pending_and_pinned_events_are_read_back_and_sort_as_their_fields(
        a in (partition(), seq(), subscription(), lane()),
        b in (partition(), seq(), subscription(), lane()),
    ) {
        let x = keys::pending(a.0, a.1, a.2, a.3);
        let y = keys::pending(b.0, b.1, b.2, b.3);
        prop_assert_eq!(keys::parse_pending(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::pending_of_event(b.0, b.1), &x), (a.0, a.1) == (b.0, b.1));
        prop_assert_eq!(within(&keys::pending_below(b.0, b.1), &x), a.0 == b.0 && a.1 < b.1);
        let x = keys::pin(a.0, a.1, a.2, a.3);
        let y = keys::pin(b.0, b.1, b.2, b.3);
        prop_assert_eq!(keys::parse_pin(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::pins_of_event(b.0, b.1), &x), (a.0, a.1) == (b.0, b.1));
        prop_assert_eq!(within(&keys::pins_below(b.0, b.1), &x), a.0 == b.0 && a.1 < b.1);
    }

    #[test]
    fn keys_of_due_events_are_read_back_and_sort_as_their_fields(
        a in (subscription_key(), at(), lane(), seq()),
        b in (subscription_key(), at(), lane(), seq()),
    ) {
        let x = keys::due(a.0, a.1, a.2, a.3);
        let y = keys::due(b.0, b.1, b.2, b.3);
        prop_assert_eq!(keys::parse_due(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::due_of(b.0), &x), a.0 == b.0);
    }

    #[test]
    fn keys_of_held_events_are_read_back_and_sort_as_their_fields(a in (partition(), seq()), b in (partition(), seq())) {
        let x = keys::carried(a.0, a.1);
        let y = keys::carried(b.0, b.1);
        prop_assert_eq!(keys::parse_carried(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::carried_of(b.0), &x), a.0 == b.0);
    }

    #[test]
    fn keys_of_dead_events_are_read_back_and_sort_as_their_fields(
        a in (subscription_key(), at(), seq(), lane()),
        b in (subscription_key(), at(), seq(), lane()),
    ) {
        let x = keys::dead(a.0, a.1, a.2, a.3);
        let y = keys::dead(b.0, b.1, b.2, b.3);
        prop_assert_eq!(keys::parse_dead(&x), Some(a));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::dead_of(b.0), &x), a.0 == b.0);
    }

    #[test]
    fn keys_of_the_ledger_are_read_back_and_sort_as_their_fields(
        a in (subscription_key(), lane(), seq(), at(), any::<u32>(), any::<u8>()),
        b in (subscription_key(), lane(), seq(), at(), any::<u32>(), any::<u8>()),
    ) {
        let [a, b] = [a, b].map(|(subscription_key, lane, first, at, attempt, what)| {
            LineKey { subscription_key, lane, first, at, attempt, what }
        });
        let x = keys::ledger_key(a);
        let y = keys::ledger_key(b);
        prop_assert_eq!(keys::parse_ledger(&x), Some(a));
        prop_assert_eq!(keys::parse_ledger_by_time(&x), None);
        let fields = |key: LineKey| (key.subscription_key, key.first, key.lane, key.at, key.attempt, key.what);
        prop_assert_eq!(x.cmp(&y), fields(a).cmp(&fields(b)));
        prop_assert_eq!(within(&keys::ledger_of(b.subscription_key), &x), a.subscription_key == b.subscription_key);
        let in_block = a.subscription_key == b.subscription_key && a.first.0 / 4096 == b.first.0 / 4096 && a.first <= b.first;
        // The last possible sequence is never assigned.
        if b.first.0 < u64::MAX {
            prop_assert_eq!(within(&keys::ledger_upto(b.subscription_key, b.first), &x), in_block);
        }
        let x = keys::ledger_by_time(a);
        let y = keys::ledger_by_time(b);
        prop_assert_eq!(keys::parse_ledger_by_time(&x), Some(a));
        let fields = |key: LineKey| (key.subscription_key, key.at, key.first, key.lane, key.attempt, key.what);
        prop_assert_eq!(x.cmp(&y), fields(a).cmp(&fields(b)));
        let between = a.subscription_key == b.subscription_key && a.at < b.at;
        prop_assert_eq!(within(&keys::ledger_between(b.subscription_key, Timestamp(0), b.at), &x), between);
        prop_assert!(within(&keys::ledgers_range(), &x) && within(&keys::ledgers_range(), &keys::ledger_key(a)));
    }

    #[test]
    fn keys_of_excerpts_and_ids_are_read_back(
        subscription_key in subscription_key(),
        excerpt in (any::<u32>(), any::<u16>(), any::<u64>()),
        block: u64,
    ) {
        let (minute, status, hash) = excerpt;
        let excerpt = ExcerptKey { minute, status, hash };
        prop_assert_eq!(keys::parse_excerpt(&keys::excerpt(subscription_key, excerpt)), Some((subscription_key, excerpt)));
        prop_assert_eq!(keys::parse_ids(&keys::ids(subscription_key.partition, block)), Some((subscription_key.partition, block)));
        let name = keys::filter_name(subscription_key, minute);
        prop_assert_eq!(keys::parse_filter_name(&name), Some((subscription_key, minute)));
        prop_assert_eq!(keys::parse_filter_name(&format!("{name}/")), None);
    }

    #[test]
    fn keys_of_meta_are_read_back_and_sort_as_their_fields(
        a in (prop::sample::select(&MetaKind::ALL[..]), prop::collection::vec(any::<u8>(), 0..9)),
        b in (prop::sample::select(&MetaKind::ALL[..]), prop::collection::vec(any::<u8>(), 0..9)),
    ) {
        let x = keys::meta_key(a.0, &a.1);
        let y = keys::meta_key(b.0, &b.1);
        prop_assert_eq!(keys::parse_meta(&x), Some((a.0, &a.1[..])));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(within(&keys::meta_of(b.0), &x), a.0 == b.0);
    }

    #[test]
    fn keys_of_floors_are_read_back(partition in partition()) {
        let key = keys::floor_key(partition);
        prop_assert_eq!(keys::parse_floor(&key), Some(partition));
        prop_assert!(within(&keys::meta_of(MetaKind::Floor), &key));
    }

    #[test]
    fn bytes_that_are_no_key_are_refused_without_a_panic(key in prop::collection::vec(any::<u8>(), 0..40)) {
        let first = key.first().copied();
        let parsed: [(Family, bool); 12] = [
            (Family::Meta, keys::parse_meta(&key).is_some()),
            (Family::Log, keys::parse_log(&key).is_some()),
            (Family::Cursor, keys::parse_cursor(&key).is_some()),
            (Family::Pending, keys::parse_pending(&key).is_some()),
            (Family::Due, keys::parse_due(&key).is_some()),
            (Family::Carried, keys::parse_carried(&key).is_some()),
            (Family::Pin, keys::parse_pin(&key).is_some()),
            (Family::Dead, keys::parse_dead(&key).is_some()),
            (Family::Ledger, keys::parse_ledger(&key).is_some()),
            (Family::Excerpt, keys::parse_excerpt(&key).is_some()),
            (Family::Ids, keys::parse_ids(&key).is_some()),
            (Family::PublishedIds, keys::parse_published_id(&key).is_some()),
        ];
        for (family, parsed) in parsed {
            prop_assert!(!parsed || first == Some(KeyKind::from_family(family) as u8));
        }
    }
}

type Parses = fn(&[u8]) -> bool;

#[test]
fn a_key_that_is_cut_or_followed_by_a_byte_is_none() {
    let subscription_key = SubscriptionKey {
        partition: PartitionId(1),
        subscription: SubscriptionId(2),
    };
    let seq = Seq(3);
    let lane = Lane(4);
    let at = Timestamp(5);
    let line = LineKey {
        subscription_key,
        lane,
        first: seq,
        at,
        attempt: 6,
        what: 7,
    };
    let excerpt = ExcerptKey {
        minute: 8,
        status: 9,
        hash: 10,
    };
    let sound: [(Vec<u8>, Parses); 13] = [
        (keys::log(subscription_key.partition, seq), |key| {
            keys::parse_log(key).is_some()
        }),
        (keys::cursor(subscription_key), |key| {
            keys::parse_cursor(key).is_some()
        }),
        (keys::outcome_page(11), |key| {
            keys::parse_outcome_page(key).is_some()
        }),
        (
            keys::pending(
                subscription_key.partition,
                seq,
                subscription_key.subscription,
                lane,
            ),
            |key| keys::parse_pending(key).is_some(),
        ),
        (keys::due(subscription_key, at, lane, seq), |key| {
            keys::parse_due(key).is_some()
        }),
        (keys::carried(subscription_key.partition, seq), |key| {
            keys::parse_carried(key).is_some()
        }),
        (
            keys::pin(
                subscription_key.partition,
                seq,
                subscription_key.subscription,
                lane,
            ),
            |key| keys::parse_pin(key).is_some(),
        ),
        (keys::dead(subscription_key, at, seq, lane), |key| {
            keys::parse_dead(key).is_some()
        }),
        (keys::ledger_key(line), |key| {
            keys::parse_ledger(key).is_some()
        }),
        (keys::ledger_by_time(line), |key| {
            keys::parse_ledger_by_time(key).is_some()
        }),
        (keys::excerpt(subscription_key, excerpt), |key| {
            keys::parse_excerpt(key).is_some()
        }),
        (keys::ids(subscription_key.partition, 11), |key| {
            keys::parse_ids(key).is_some()
        }),
        (
            keys::published_id(subscription_key.partition, IdDigest(12, 13)),
            |key| keys::parse_published_id(key).is_some(),
        ),
    ];
    for (mut key, parses) in sound {
        assert!(parses(&key));
        assert!((0..key.len()).all(|cut| !parses(&key[..cut])));
        key.push(0);
        assert!(!parses(&key));
    }
}

#[test]
fn every_kind_has_the_byte_that_it_was_given() {
    let bytes = Family::ALL.map(|family| KeyKind::from_family(family) as u8);
    assert_eq!(
        bytes,
        [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14],
        "9 is given up"
    );
    assert_eq!(
        MetaKind::ALL.map(|kind| kind as u8),
        [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 30, 31
        ]
    );
    for family in Family::ALL {
        let byte = KeyKind::from_family(family) as u8;
        assert_eq!(keys::family_range(family), vec![byte]..vec![byte + 1]);
    }
}
