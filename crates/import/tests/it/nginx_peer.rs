//! nginx and the rules that are written for its configuration, on the same arrivals: what both admit differs by at most
//! one request in any interval of one second (`r/s`) or minute (`r/m`), for each key.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::{Gate, Micros, Timestamp};
use tidegate_testkit::accuracy::{ArrivalPattern, ArrivalPlan};
use tidegate_testkit::nginx::NginxProcess;
use tidegate_testkit::timeline::START;

use super::peer_limit::{
    DecidedTwice, PeerDelay, PeerLimit, Thousandths, decided, largest_difference, most_beyond,
};
use super::support::import;

const PROGRAM: &str = "nginx";
const SEED: u64 = 20_261_117;

fn is_admitted(gate: &Gate, key: &str, at: Timestamp) -> bool {
    decided(gate, key, at).is_some()
}

/// Decides arrivals by the arithmetic of nginx and by the rules, for each key. Times are cut to `precision`.
fn decided_by_both(
    limit: PeerLimit,
    pattern: ArrivalPattern,
    precision: u64,
) -> Vec<(u32, Vec<DecidedTwice>)> {
    // Many keys have many requests, and so has a large limit.
    let windows = if pattern == ArrivalPattern::ZipfKeys {
        3
    } else {
        (3_000 / limit.count).min(30)
    };
    let (count, window) = (limit.count, limit.window());
    let plan = ArrivalPlan {
        pattern,
        count,
        window,
        windows,
        seed: SEED,
    };
    let gate = limit.gate();
    let mut keys: BTreeMap<u32, (Thousandths, Vec<DecidedTwice>)> = BTreeMap::new();
    for arrival in plan.draw() {
        let at = Timestamp::from_micros(arrival.at.as_micros() / precision * precision);
        let new = || (Thousandths::new(limit), Vec::new());
        let (nginx, decided) = keys.entry(arrival.key).or_insert_with(new);
        let by_rules = is_admitted(&gate, &arrival.key.to_string(), at);
        decided.push((at, nginx.decide(at).is_some(), by_rules));
    }
    let keys = keys.into_iter();
    keys.map(|(key, (_, decided))| (key, decided)).collect()
}

/// The same, compared; how many arrivals there are.
fn compare_with_arithmetic(limit: PeerLimit, pattern: ArrivalPattern, precision: u64) -> usize {
    let mut arrivals = 0;
    for (key, decided) in decided_by_both(limit, pattern, precision) {
        let difference = largest_difference(&decided, limit.window());
        assert!(
            difference <= 1,
            "{limit:?}, {pattern:?}, key {key}: {difference}"
        );
        arrivals += decided.len();
    }
    arrivals
}

/// Limits of 1 to 100 requests, but for those that nginx rounds.
fn limits() -> Vec<PeerLimit> {
    let rates = [
        (1, false),
        (3, false),
        (10, false),
        (100, false),
        (3, true),
        (30, true),
        (60, true),
    ];
    let mut limits = Vec::new();
    for (count, is_per_minute) in rates {
        for burst in [0, 2, count - 1, count * 2] {
            limits.push(PeerLimit {
                count,
                is_per_minute,
                burst,
                delay: PeerDelay::None,
            });
        }
    }
    limits
}

#[test]
fn the_rules_admit_what_nginx_admits_at_times_in_whole_milliseconds() {
    let mut requests = 0;
    for limit in limits() {
        for pattern in ArrivalPattern::ALL {
            requests += compare_with_arithmetic(limit, pattern, 1_000);
        }
    }
    assert!(requests > 100_000, "{requests}");
}

/// The finding about a burst that is small against the rate.
fn small_burst(limit: PeerLimit) -> Option<String> {
    let imported = import(&limit.http()).unwrap();
    let mut findings = imported.findings.iter().map(ToString::to_string);
    findings.find(|line| line.contains("small against the rate"))
}

/// The report of an import says which limits these are: all but those with a burst that is small against the rate.
#[test]
fn the_rules_admit_what_nginx_admits_unless_the_report_says_that_milliseconds_matter() {
    let mut reported = 0;
    for limit in limits() {
        if small_burst(limit).is_some() {
            reported += 1;
            continue;
        }
        for pattern in ArrivalPattern::ALL {
            compare_with_arithmetic(limit, pattern, 1);
        }
    }
    assert!((1..limits().len() / 2).contains(&reported), "{reported}");
}

/// nginx admits requests up to a millisecond early, so it is the one that admits more; a larger burst has room for both.
#[test]
fn where_milliseconds_matter_the_rules_are_the_stricter_ones() {
    let limit = |burst| PeerLimit {
        count: 500,
        is_per_minute: false,
        burst,
        delay: PeerDelay::None,
    };
    let mut most = (0, 0);
    for pattern in ArrivalPattern::ALL {
        for (_, decided) in decided_by_both(limit(0), pattern, 1) {
            let (by_nginx, by_rules) = most_beyond(&decided, Micros::SECOND);
            most = (most.0.max(by_nginx), most.1.max(by_rules));
        }
    }
    println!("nginx admitted up to {} more", most.0);
    assert!(most.0 > 10 && most.1 <= 1, "{most:?}");
    let reported = small_burst(limit(0)).unwrap();
    assert!(
        reported.ends_with("from burst=50 on they agree"),
        "{reported}"
    );
    assert!(small_burst(limit(49)).is_some() && small_burst(limit(50)).is_none());
    for pattern in ArrivalPattern::ALL {
        compare_with_arithmetic(limit(50), pattern, 1);
    }
}

#[test]
fn a_rate_that_nginx_rounds_is_reported() {
    for (count, is_rounded) in [
        (1, true),
        (2, true),
        (3, false),
        (10, true),
        (30, false),
        (100, true),
    ] {
        let limit = PeerLimit {
            count,
            is_per_minute: true,
            burst: 20,
            delay: PeerDelay::None,
        };
        let imported = import(&limit.http()).unwrap();
        let mut findings = imported.findings.iter().map(ToString::to_string);
        assert_eq!(
            findings.any(|line| line.contains("nginx rounds")),
            is_rounded,
            "{count}"
        );
    }
}

/// How long real arrivals last.
#[expect(
    clippy::disallowed_methods,
    reason = "a long run is chosen for a run of the tests"
)]
fn seconds() -> u64 {
    std::env::var("NGINX_PEER_SECONDS").map_or(3, |seconds| seconds.parse().unwrap())
}

/// Sends the arrivals of each pattern to nginx, each as another key, at the same time. What nginx decided as of which
/// time is compared with the rules.
fn compare_with_nginx(limit: PeerLimit) -> usize {
    let nginx = NginxProcess::start(PROGRAM, &limit.http());
    let patterns = ArrivalPattern::ALL
        .into_iter()
        .filter(|pattern| *pattern != ArrivalPattern::ZipfKeys);
    let runs: Vec<_> = patterns
        .map(|pattern| {
            // A minute's limit is tried for seconds: arrivals are in proportion to what it grants in a second.
            let count = if limit.is_per_minute {
                limit.count / 60
            } else {
                limit.count
            };
            let windows = seconds();
            let plan = ArrivalPlan {
                pattern,
                count,
                window: Micros::SECOND,
                windows,
                seed: SEED,
            };
            let connection = nginx.connect().unwrap();
            std::thread::spawn(move || (pattern, asked(connection, &plan)))
        })
        .collect();
    let mut requests = 0;
    let gate = limit.gate();
    for run in runs {
        let (pattern, asked) = run.join().unwrap();
        let key = pattern.name();
        let decided: Vec<_> = asked
            .iter()
            .map(|(at, by_nginx)| (*at, *by_nginx, is_admitted(&gate, &key, *at)))
            .collect();
        let admitted = decided.iter().filter(|(_, by_nginx, _)| *by_nginx).count();
        let by_rules = decided.iter().filter(|(.., by_rules)| *by_rules).count();
        let otherwise = decided
            .iter()
            .filter(|(_, by_nginx, by_rules)| by_nginx != by_rules)
            .count();
        let difference = largest_difference(&decided, limit.window());
        println!(
            "{limit:?}, {key}: {} requests, nginx admitted {admitted}, rules {by_rules}, {otherwise} decided otherwise, difference in an interval {difference}",
            decided.len()
        );
        assert!(difference <= 1, "{limit:?}, {key}: {difference}");
        assert!(
            admitted < decided.len()
                || matches!(
                    pattern,
                    ArrivalPattern::Poisson {
                        percent: 50 | 90 | 100
                    }
                ),
            "something is denied"
        );
        requests += decided.len();
    }
    requests
}

/// Sends arrivals at their times: as of when nginx decided each, and whether it was admitted.
fn asked(
    mut connection: tidegate_testkit::nginx::NginxConnection,
    plan: &ArrivalPlan,
) -> Vec<(Timestamp, bool)> {
    let key = plan.pattern.name();
    let started = tidegate_testkit::now();
    let mut decided = Vec::new();
    for arrival in plan.draw() {
        let due = Duration::from(arrival.at.since(START));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        let answer = connection.ask("GET /", &[("x-key", &key)]).unwrap();
        let is_admitted = match answer.status {
            200 => true,
            429 => false,
            other => panic!("nginx answered {other}"),
        };
        let (now, lasted) = answer.header("x-arrived").unwrap().split_once(' ').unwrap();
        let millis = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
        let at = Timestamp::from_micros((millis(now) - millis(lasted)) * 1_000);
        decided.push((at, is_admitted));
    }
    decided
}

#[test]
fn nginx_and_the_rules_admit_the_same_of_a_rate_per_second() {
    let limit = PeerLimit {
        count: 30,
        is_per_minute: false,
        burst: 9,
        delay: PeerDelay::None,
    };
    assert!(compare_with_nginx(limit) > 200);
}

#[test]
fn nginx_and_the_rules_admit_the_same_of_a_rate_per_minute() {
    let limit = PeerLimit {
        count: 1_200,
        is_per_minute: true,
        burst: 5,
        delay: PeerDelay::None,
    };
    assert!(compare_with_nginx(limit) > 200);
}
