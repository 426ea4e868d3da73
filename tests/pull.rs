//! Pull delivery from the parts of a spread topic: which part is asked first, and which lock tokens
//! go where.

use futures_util::FutureExt as _;
use gridhook::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    policy::record::lease::{Lease, LeaseResult},
    pull::{
        LockTokenSealer, NodePolls,
        body::{LockTokensBody, SettleResponse},
        parts::{in_turn, merge_results, tokens_by_part},
    },
};
use serde_json::json;

const KEY: SubscriptionKey = SubscriptionKey {
    partition: PartitionId(3),
    subscription: SubscriptionId(7),
};

fn lease(seq: u64) -> Lease {
    Lease {
        lane: Lane::LIVE,
        seq: Seq(seq),
        attempt: 1,
        appended: Timestamp(5),
    }
}

/// The sealer of a shard, each with a key of its own.
fn sealer(shard: u8) -> LockTokenSealer {
    LockTokenSealer::new(&[shard; 32]).with_shard(shard.into())
}

#[test]
fn each_part_is_asked_first_in_its_turn_and_then_those_of_the_node() {
    let near = [false, true, false, true, false, false];
    let orders: Vec<Vec<usize>> = (6..12).map(|turn| in_turn(turn, &near)).collect();
    assert_eq!(
        orders[..3],
        [
            vec![0, 1, 3, 2, 4, 5],
            vec![1, 3, 2, 4, 5, 0],
            vec![2, 3, 1, 4, 5, 0]
        ]
    );
    for (first, order) in orders.iter().enumerate() {
        assert_eq!(order[0], first);
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }
    assert_eq!(in_turn(5, &[true]), [0]);
}

#[test]
fn a_lock_token_of_a_spread_topic_says_its_shard_and_holds_only_there() {
    let token = sealer(2).seal_lease(KEY, lease(9), true);
    assert_eq!(LockTokenSealer::part_of(&token), Some(2));
    assert_eq!(sealer(2).open(KEY, &token), Some(lease(9)));
    assert_eq!(sealer(2).read(&token), Some((KEY, lease(9))));
    let other = SubscriptionKey {
        subscription: SubscriptionId(8),
        ..KEY
    };
    assert_eq!(sealer(2).open(other, &token), None);
    // Shards do not share keys; but if they did, a token would still hold in one of them only.
    for sealer in [
        sealer(3),
        LockTokenSealer::new(&[2; 32]).with_shard(3),
        LockTokenSealer::new(&[2; 32]),
    ] {
        assert_eq!(sealer.read(&token), None);
    }
    // The tokens of other topics are as they were.
    let plain = sealer(2).seal_lease(KEY, lease(9), false);
    assert_eq!(
        plain,
        LockTokenSealer::new(&[2; 32]).seal_lease(KEY, lease(9), true)
    );
    assert_eq!((plain.len(), LockTokenSealer::part_of(&plain)), (63, None));
    assert_eq!(sealer(2).open(KEY, &plain), Some(lease(9)));
    for cut in 0..token.len() {
        assert_eq!(sealer(2).read(&token[..cut]), None);
    }
}

#[test]
fn the_results_of_several_shards_are_in_the_order_of_the_tokens() {
    let token = |shard, seq| sealer(shard).seal_lease(KEY, lease(seq), true);
    let lock_tokens = vec![
        token(2, 1),
        "x".to_owned(),
        token(0, 2),
        token(2, 3),
        token(9, 4),
        token(0, 5),
        token(2, 6),
    ];
    let given = LockTokensBody {
        lock_tokens: lock_tokens.clone(),
    };
    let by_part = tokens_by_part(&given, 1, 3);
    let pick = |places: &[usize]| {
        places
            .iter()
            .map(|place| lock_tokens[*place].clone())
            .collect::<Vec<_>>()
    };
    // The leader refuses what no part has given out.
    let expected = [
        (0, pick(&[2, 5])),
        (1, pick(&[1, 4])),
        (2, pick(&[0, 3, 6])),
    ];
    assert_eq!(by_part.into_iter().collect::<Vec<_>>(), expected);
    let mut answers: Vec<SettleResponse> = (0..3).map(|_| SettleResponse::default()).collect();
    answers[2].add(lock_tokens[0].clone(), Some(LeaseResult::Done));
    answers[2].add(lock_tokens[3].clone(), Some(LeaseResult::Lost));
    answers[2].add(lock_tokens[6].clone(), Some(LeaseResult::Done));
    answers[1].add_bad(lock_tokens[1].clone());
    answers[1].add_bad(lock_tokens[4].clone());
    answers[0].add(lock_tokens[2].clone(), Some(LeaseResult::Done));
    answers[0].add(lock_tokens[5].clone(), None);
    // As they come over a connection.
    let read = |response| {
        serde_json::from_value::<SettleResponse>(serde_json::to_value::<SettleResponse>(response)?)
    };
    let answers: Result<Vec<SettleResponse>, _> = answers.into_iter().map(read).collect();
    let all = serde_json::to_value(merge_results(&given, answers.expect("JSON"))).expect("JSON");
    assert_eq!(all["succeededLockTokens"], json!(pick(&[0, 2, 6])));
    let failed = all["failedLockTokens"].as_array().expect("a list");
    let failed: Vec<_> = failed
        .iter()
        .map(|failed| (&failed["lockToken"], &failed["error"]["code"]))
        .collect();
    let [bad, lost, far, unknown] = [1, 3, 4, 5].map(|place| json!(lock_tokens[place]));
    let [is_bad, is_lost, is_unknown] =
        ["BadToken", "TokenLost", "InternalServerError"].map(|code| json!(code));
    assert_eq!(
        failed,
        [
            (&bad, &is_bad),
            (&lost, &is_lost),
            (&far, &is_bad),
            (&unknown, &is_unknown)
        ]
    );
}

#[test]
fn a_request_that_was_canceled_before_it_arrived_ends_at_once() {
    let polls = NodePolls::default();
    let wait = |id| polls.begin_poll(id);
    let is_canceled = |id| wait(id).wait_until_canceled().now_or_never().is_some();
    assert!(!is_canceled(1));
    polls.cancel_polls(&[1, 2]);
    assert!(is_canceled(2));
    assert!(!is_canceled(3));
    // One waiting client ends, and the others continue to wait.
    let [first, second] = [4, 5].map(wait);
    polls.cancel_polls(&[5, 6]);
    let ends = [&first, &second].map(|poll| poll.wait_until_canceled().now_or_never().is_some());
    assert_eq!(ends, [false, true]);
}
