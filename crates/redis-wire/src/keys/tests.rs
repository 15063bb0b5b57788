//! Names never meet, and never leave their slot.

use proptest::prelude::*;
use tidegate_core::{Limit, PermitId, Scope};
use tidegate_testkit::timeline::any_limit;

use super::*;

fn keys() -> RedisKeys {
    RedisKeys::new(None, KeySecret::new(SecretFrom::Public))
}

#[test]
fn names_by_hand() {
    let open = Scope::new("per-user");
    let secret = Scope::new("per-user").with_secret_keys();
    let limit = |text: &str, algorithm: Option<Algorithm>| -> Limit {
        match algorithm {
            Some(algorithm) => Limit::new(text.parse().unwrap(), algorithm).unwrap(),
            None => text.parse().unwrap(),
        }
    };
    let first = Algorithm::FixedWindow {
        anchor: Anchor::FirstRequest,
    };
    let strict = Algorithm::SlidingWindowSlots {
        slots: None,
        strict: true,
    };
    let slots = Algorithm::SLIDING_WINDOW_SLOTS;
    #[rustfmt::skip]
    let table = [
        (&open,   "user_42", limit("10/minute", None), "tg:{user_42}:per-user:tb:1m"),
        (&open,   "user_42", limit("10/90s burst 5", None), "tg:{user_42}:per-user:tb:90s"),
        (&open,   "",        limit("10/hour", Some(Algorithm::LEAKY_BUCKET)), "tg:{*}:per-user:lb:1h"),
        (&open,   "*",       limit("10/day", Some(Algorithm::FIXED_WINDOW)), "tg:{%2a}:per-user:fw:1d"),
        (&open,   "a}b",     limit("10/month", None), "tg:{a%7db}:per-user:fw:month"),
        (&open,   "é",       limit("10/minute", Some(first)), "tg:{%c3%a9}:per-user:fwf:1m"),
        (&open,   "a",       limit("10/minute", Some(Algorithm::SlidingWindowLog)), "tg:{a}:per-user:log:1m"),
        (&open,   "a",       limit("10/minute", Some(Algorithm::SlidingWindowCounter)), "tg:{a}:per-user:swc:1m"),
        (&open,   "a",       limit("10/minute", Some(slots)), "tg:{a}:per-user:sws:1m/60"),
        (&open,   "a",       limit("10/minute", Some(strict)), "tg:{a}:per-user:sws:1m/60s"),
        (&open,   "a",       Limit::concurrent(3).unwrap(), "tg:{a}:per-user:con"),
    ];
    for (scope, key, limit, name) in table {
        assert_eq!(keys().state(scope, &limit, key), name);
    }
    let hashed = keys().state(&secret, &limit("10/minute", None), "sk-secret");
    assert!(hashed.starts_with("tg:{~") && hashed.ends_with("}:per-user:tb:1m"));
    assert!(!hashed.contains("secret"));
    let long = "k".repeat(65);
    let hashed = keys().state(&open, &limit("10/minute", None), &long);
    assert_eq!(hashed.len(), "tg:{~}:per-user:tb:1m".len() + 32);
}

#[test]
fn the_secret_decides_what_hashed_keys_are_called() {
    let scope = Scope::new("s").with_secret_keys();
    let limit: Limit = "1/minute".parse().unwrap();
    let names = [
        SecretFrom::Configured(b"one"),
        SecretFrom::Configured(b"two"),
        SecretFrom::Password("one"),
        SecretFrom::Public,
    ]
    .map(|from| RedisKeys::new(None, KeySecret::new(from)).state(&scope, &limit, "key"));
    let apart: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(apart.len(), names.len());
}

#[test]
fn a_namespace_is_the_second_part_of_every_name() {
    let staging = "staging".parse().unwrap();
    let keys = RedisKeys::new(Some(&staging), KeySecret::new(SecretFrom::Public));
    let limit: Limit = "10/minute".parse().unwrap();
    let state = keys.state(&Scope::new("per-user"), &limit, "a:b");
    assert_eq!(state, "tg:staging:{a%3ab}:per-user:tb:1m");
    let lease = RedisKeys::permit_for(&state, PermitId::random());
    let register = keys.register(lease);
    assert!(register.starts_with("tg:staging:{"), "{register}");
    assert_eq!(slot_of(&register), slot_of(&state));
}

/// Keys of all kinds, among them those that are made of what names are made of.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        "[a-c:{}*~%2]{0,6}",
        "[a-z]{60,70}",
        Just("~".to_owned() + &"0".repeat(32)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn no_two_states_have_one_name(
        one in (any_key(), any_key(), any_limit(), any::<bool>()),
        other in (any_key(), any_key(), any_limit(), any::<bool>()),
        shares in 0..8_u8,
    ) {
        let mut other = other;
        if shares & 1 != 0 { other.0.clone_from(&one.0); }
        if shares & 2 != 0 { other.1.clone_from(&one.1); }
        if shares & 4 != 0 { other.2 = one.2.clone(); }
        let scope = |name: &str, is_secret: bool| {
            let scope = Scope::new(name);
            if is_secret { scope.with_secret_keys() } else { scope }
        };
        let name = |(scope_name, key, limit, is_secret): &(String, String, Limit, bool)| {
            keys().state(&scope(scope_name, *is_secret), limit, key)
        };
        let is_same = one.0 == other.0 && one.1 == other.1 && one.2.shape() == other.2.shape();
        if is_same && one.3 == other.3 {
            prop_assert_eq!(name(&one), name(&other));
        } else if !is_same {
            prop_assert_ne!(name(&one), name(&other));
        }
    }

    #[test]
    fn no_key_leaves_its_tag(scope in any_key(), key in any_key(), limit in any_limit()) {
        let name = keys().state(&Scope::new(&scope), &limit, &key);
        prop_assert_eq!(name.matches('{').count(), 1);
        prop_assert_eq!(name.matches('}').count(), 1);
        let has_empty_tag = name.contains("{}");
        prop_assert!(!has_empty_tag);
        prop_assert_eq!(slot_of(&name), slot_of(&RedisKeys::companion(&name)));
        let lease = RedisKeys::permit_for(&name, PermitId::random());
        prop_assert_eq!(slot_of(&keys().register(lease)), slot_of(&name));
    }

    #[test]
    fn no_state_of_a_namespace_is_one_without_it_or_of_another(
        key in any_key(), scope in any_key(), limit in any_limit(),
        one in "[A-Za-z0-9-]{1,32}", other in "[A-Za-z0-9-]{1,32}", other_key in any_key(),
    ) {
        let in_namespace = |name: &str, key: &str| {
            let name = name.parse().unwrap();
            let keys = RedisKeys::new(Some(&name), KeySecret::new(SecretFrom::Public));
            keys.state(&Scope::new(&scope), &limit, key)
        };
        let here = in_namespace(&one, &key);
        prop_assert_ne!(&here, &keys().state(&Scope::new(&scope), &limit, &other_key));
        if one != other {
            prop_assert_ne!(&here, &in_namespace(&other, &other_key));
        }
        prop_assert_eq!(slot_of(&here), slot_of(&in_namespace(&other, &key)));
    }

    #[test]
    fn any_lease_has_a_register(id: u128) {
        let lease = PermitId::from_u128(id);
        prop_assert_eq!(slot_of(&keys().register(lease)), slot_of_permit(lease));
    }
}
