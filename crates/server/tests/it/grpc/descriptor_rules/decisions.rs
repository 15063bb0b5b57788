//! Which calls pass, and what they charge.

use tidegate_server::grpc_messages::rate_limit::{RateLimitOverride, Unit};

use tidegate::{Clock as _, SystemClock};

use super::{calling, codes, play, servers};

const RULES: &str = "
domain: web
descriptors:
  - {key: five, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: two, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: nothing, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: most, rate_limit: {unit: day, requests_per_unit: 4294967295}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 2}}
  - {key: leased, rate_limit: {unit: day, requests_per_unit: 20}, tidegate: {algorithm: fixed_window, sync: leased}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 5}, tidegate: {algorithm: sliding_window_log}}
  - {key: free, rate_limit: {unlimited: true}}
";

#[tokio::test]
async fn decisions_by_hand() {
    for (store, server, _redis) in servers(RULES, "") {
        let mut client = server.client().await;
        #[rustfmt::skip]
        let calls: [(&[&str], usize, &str); 47] = [
            // Without hits of its own, a descriptor is charged if it passes.
            (&["five=a"],               5, "O O"),
            (&["five=a"],               2, "X X"),
            // One that asks for nothing passes while no more is used than is granted.
            (&["five=a +0"],            2, "O O"),
            (&["five=a +1"],            1, "X X"),
            (&["five=a +0"],            1, "X X"),
            // Hits of its own are charged in full.
            (&["five=b +4"],            1, "O O"),
            (&["five=b +4"],            1, "X X"),
            (&["five=b +0"],            1, "X X"),
            (&["five=b"],               1, "X X"),
            (&["five=c +5"],            1, "O O"),
            (&["five=c +0"],            1, "O O"),
            // What does not fit without hits of its own takes nothing.
            (&["two=a"],                1, "O O"),
            (&["two=a", "five=d"],      1, "O OO"),
            (&["two=a", "five=d"],      1, "X XO"),
            // Each is charged on its own: of five, two are left.
            (&["five=d"],               3, "O O"),
            (&["five=d"],               1, "X X"),
            // A limit of nothing.
            (&["nothing=a +0"],         1, "O O"),
            (&["nothing=a"],            2, "X X"),
            (&["nothing=a +0"],         1, "O O"),
            (&["nothing=a +3"],         1, "X X"),
            (&["nothing=a +0"],         1, "X X"),
            // A shadow limit passes.
            (&["watched=a"],            4, "O O"),
            (&["watched=b +9"],         1, "O O"),
            (&["watched=b +0"],         1, "O O"),
            // As many as there are.
            (&["most=a +4294967295"],   1, "O O"),
            (&["most=a +0"],            1, "O O"),
            (&["most=a"],               1, "X X"),
            (&["most=a +1"],            1, "X X"),
            (&["most=a +0"],            1, "X X"),
            (&["most=b +4294967294"],   1, "O O"),
            (&["most=b"],               1, "O O"),
            (&["most=b"],               1, "X X"),
            (&["most=c +18446744073709551615"], 1, "X X"),
            (&["most=c +18446744073709551615"], 1, "X X"),
            (&["most=c +0"],            1, "X X"),
            (&["week=a"],               2, "O O"),
            (&["week=a"],               1, "X X"),
            // Units that are taken in advance are charged in full, too.
            (&["leased=a +15"],         1, "O O"),
            (&["leased=a +15"],         1, "X X"),
            (&["leased=a +0"],          1, "X X"),
            // Another algorithm counts no more than it grants.
            (&["log=a +9"],             1, "X X"),
            (&["log=a +0"],             1, "X X"),
            (&["log=b +4"],             1, "O O"),
            (&["log=b +0"],             1, "O O"),
            (&["log=b +1"],             1, "O O"),
            (&["free=a +9", "none=a"],  2, "O OO"),
            (&["free=a"],               9, "O O"),
        ];
        play(store, &mut client, "web", &calls).await;
        play(store, &mut client, "other", &[(&["five=a"], 9, "O O")]).await;
    }
}

#[tokio::test]
async fn the_hits_of_the_call_are_at_least_one_and_not_those_of_a_descriptor() {
    for (store, server, _redis) in servers(RULES, "") {
        let mut client = server.client().await;
        let mut asked = calling("web", &["five=a", "five=b +1"]);
        asked.hits_addend = 3;
        for expected in ["O OO", "X XO"] {
            let answer = client.ask(asked.clone()).await.unwrap();
            assert_eq!(codes(&answer), expected, "{store}");
        }
        // Of the first, 3 were charged; of the second, 2.
        play(
            store,
            &mut client,
            "web",
            &[(&["five=a"], 2, "O O"), (&["five=a"], 1, "X X")],
        )
        .await;
        play(
            store,
            &mut client,
            "web",
            &[(&["five=b"], 3, "O O"), (&["five=b"], 1, "X X")],
        )
        .await;
    }
}

#[tokio::test]
async fn a_limit_of_the_call_counts_like_one_of_the_file() {
    for (store, server, _redis) in servers(RULES, "") {
        let mut client = server.client().await;
        let mut asks = async |entries: &str, limit: u32, expected: &str| {
            let mut asked = calling("web", &[entries]);
            asked.descriptors[0].limit = Some(RateLimitOverride {
                requests_per_unit: limit,
                unit: Unit::Day.into(),
            });
            let answer = client.ask(asked).await.unwrap();
            assert_eq!(codes(&answer), expected, "{store}: {entries} of {limit}");
            let status = &answer.statuses[0];
            assert_eq!(
                status.current_limit.as_ref().unwrap().requests_per_unit,
                limit
            );
            assert!(status.duration_until_reset.as_ref().unwrap().seconds > 0);
        };
        asks("mine=a +3", 2, "X X").await;
        asks("mine=a +0", 2, "X X").await;
        asks("mine=a +0", 3, "O O").await;
        asks("mine=a", 4, "O O").await;
        asks("mine=a", 4, "X X").await;
        asks("mine=b +0", 0, "O O").await;
        asks("mine=b", 0, "X X").await;
        asks("mine=c +4294967295", u32::MAX, "O O").await;
        asks("mine=c", u32::MAX, "X X").await;
        // It continues the counter of the file.
        asks("two=a", 9, "O O").await;
        asks("two=a", 9, "O O").await;
        asks("two=a", 2, "X X").await;
    }
}

#[tokio::test]
async fn a_call_charges_all_or_nothing_by_the_setting() {
    for (store, server, _redis) in servers(RULES, "all_or_nothing: true\n") {
        let mut client = server.client().await;
        #[rustfmt::skip]
        let calls: [(&[&str], usize, &str); 8] = [
            (&["two=a"],                            2, "O O"),
            (&["two=a", "five=a"],                  3, "X XO"),
            (&["five=a"],                           5, "O O"),
            (&["five=a"],                           1, "X X"),
            (&["watched=a", "five=b"],              4, "O OO"),
            (&["two=a", "five=b +1"],               1, "X XO"),
            (&["five=b"],                           1, "X X"),
            (&["two=b", "watched=a", "none=a"],     2, "O OOO"),
        ];
        play(store, &mut client, "web", &calls).await;
    }
}

#[tokio::test]
async fn every_call_passes_or_every_limit_is_a_quota_by_settings() {
    for (store, server, _redis) in servers(RULES, "shadow: true\n") {
        let mut client = server.client().await;
        let calls: [(&[&str], usize, &str); 2] =
            [(&["two=a"], 2, "O O"), (&["two=a", "five=a"], 3, "O XO")];
        play(store, &mut client, "web", &calls).await;
    }
    for (store, server, _redis) in servers(RULES, "quota: true\n") {
        let mut client = server.client().await;
        #[rustfmt::skip]
        let calls: [(&[&str], usize, &str); 4] = [
            (&["two=a", "five=a"],  2, "O OO"),
            (&["two=a", "five=a"],  3, "O XO"),
            (&["two=a", "five=a"],  2, "X XX"),
            (&["two=a"],            1, "X X"),
        ];
        play(store, &mut client, "web", &calls).await;
    }
}

#[tokio::test]
async fn weeks_are_those_of_the_calendar_or_of_the_epoch() {
    for (settings, offset) in [("", 4), ("units: epoch\n", 0)] {
        for (store, server, _redis) in servers(RULES, settings) {
            let mut client = server.client().await;
            let answer = client.ask(calling("web", &["week=a"])).await.unwrap();
            let status = &answer.statuses[0];
            let limit = status.current_limit.as_ref().unwrap();
            assert_eq!(limit.unit, i32::from(Unit::Week), "{store}");
            let now = SystemClock.now().as_micros() / 1_000_000;
            let days = 86_400 * offset;
            let passed = (now + 7 * 86_400 - days) % (7 * 86_400);
            let left = status.duration_until_reset.as_ref().unwrap().seconds;
            let expected = i64::try_from(7 * 86_400 - passed).unwrap();
            assert!(
                (expected - left).abs() <= 5,
                "{store} {settings}: {left}, not {expected}"
            );
        }
    }
}
