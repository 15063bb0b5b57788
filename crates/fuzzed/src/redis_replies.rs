//! Replies of Redis: a server may answer anything, and what is accepted has the form of what was asked.

use tidegate::Retry;
use tidegate_redis::fuzzing::{DecodedReply, decode_replies, failure, slot_ranges};

/// Reads a reply as that of each call of the store.
pub fn check(bytes: &[u8]) {
    for reply in decode_replies(bytes) {
        check_reply(&reply);
    }
    for (_, _, host, _) in slot_ranges(bytes) {
        assert!(!host.is_empty(), "a master has a host");
    }
    if let Some((message, node)) = failure(bytes) {
        assert!(!message.is_empty(), "a failure is explained");
        assert!(message.len() <= 4 * bytes.len() + 512, "{message}");
        if let Some((host, _)) = node {
            assert!(!host.contains(['[', ']']) || host.len() > 2, "{host}");
        }
    }
}

fn check_reply(reply: &DecodedReply) {
    let Some(answers) = &reply.answers else {
        return;
    };
    assert_eq!(answers.len(), reply.capacities.len(), "{reply:?}");
    let answered = answers.iter().zip(&reply.capacities);
    for (outcomes, capacities) in answered {
        // A step can fail on its own.
        let Some(outcomes) = outcomes else {
            continue;
        };
        assert_eq!(outcomes.len(), capacities.len(), "{reply:?}");
        for (outcome, capacity) in outcomes.iter().zip(capacities) {
            assert_eq!(outcome.limit, *capacity, "{reply:?}");
            assert_eq!(outcome.allowed, outcome.retry == Retry::Now, "{reply:?}");
        }
    }
}
