//! Requests that nginx holds back (`burst` without `nodelay`, `delay=`), and what the rules for it hold back.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Timestamp;
use tidegate_testkit::accuracy::{ArrivalPattern, ArrivalPlan};
use tidegate_testkit::nginx::NginxProcess;

use super::peer_limit::{
    DecidedTwice, PeerDelay, PeerLimit, Thousandths, decided, largest_difference,
};

const LIMITS: [PeerLimit; 4] = [
    limit(10, 5, PeerDelay::All),
    limit(10, 12, PeerDelay::After(8)),
    limit(50, 20, PeerDelay::All),
    limit(5, 6, PeerDelay::After(1)),
];

const fn limit(count: u64, burst: u64, delay: PeerDelay) -> PeerLimit {
    PeerLimit {
        count,
        is_per_minute: false,
        burst,
        delay,
    }
}

/// These rates are whole thousandths of a request in each millisecond, so nothing is rounded but the delay itself.
#[test]
fn the_rules_hold_back_as_long_as_the_arithmetic_of_nginx_says() {
    let mut delayed = 0;
    for limit in LIMITS {
        for pattern in ArrivalPattern::ALL {
            let plan = ArrivalPlan {
                pattern,
                count: limit.count,
                window: limit.window(),
                windows: 5,
                seed: 20_261_118,
            };
            let gate = limit.gate();
            let mut keys: BTreeMap<u32, (Thousandths, Vec<DecidedTwice>)> = BTreeMap::new();
            for arrival in plan.draw() {
                let at = Timestamp::from_micros(arrival.at.as_micros() / 1_000 * 1_000);
                let new = || (Thousandths::new(limit), Vec::new());
                let (nginx, both) = keys.entry(arrival.key).or_insert_with(new);
                let by_nginx = nginx.decide(at);
                let by_rules = decided(&gate, &arrival.key.to_string(), at);
                if let (Some(nginx), Some(rules)) = (by_nginx, by_rules) {
                    let difference = nginx.abs_diff(rules);
                    let one = Duration::from_millis(1);
                    assert!(difference <= one, "{limit:?}: {nginx:?}, {rules:?}");
                    delayed += u64::from(nginx > Duration::ZERO);
                }
                both.push((at, by_nginx.is_some(), by_rules.is_some()));
            }
            for (_, both) in keys.into_values() {
                assert!(largest_difference(&both, limit.window()) <= 1, "{limit:?}");
            }
        }
    }
    assert!(delayed > 500, "only {delayed} were held back");
}

/// What nginx logged of a request: the excess of one that it holds back or denies, in thousandths.
fn logged_excess(log: &str, number: usize) -> Option<u64> {
    let request = format!("\"GET /?n={number} ");
    let line = log.lines().find(|line| line.contains(&request))?;
    let (_, rest) = line.split_once("excess: ")?;
    let excess = rest.split(' ').next()?;
    excess.trim_end_matches(',').replace('.', "").parse().ok()
}

/// Sends more requests than the burst has room for, all at the same time. In its log nginx says how far each was beyond
/// the rate, from which its delay follows.
fn compare_with_nginx(limit: PeerLimit) {
    let nginx = NginxProcess::start("nginx", &limit.http());
    let sent = usize::try_from(limit.burst).unwrap() + 4;
    let connect = |_| nginx.connect().unwrap();
    let mut connections: Vec<_> = (0..sent).map(connect).collect();
    // Stopped, so that it finds all of them, however long it takes to send them.
    nginx.stop();
    for (number, connection) in connections.iter_mut().enumerate() {
        let line = format!("GET /?n={number}");
        connection.send(&line, &[("x-key", "one")]).unwrap();
    }
    nginx.resume();
    let answers = connections.iter_mut().map(|one| one.answer().unwrap());
    let answers: Vec<_> = answers.collect();
    let log = nginx.file("limits.log");
    let arithmetic = Thousandths::new(limit);
    let millis = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
    let mut by_nginx = Vec::new();
    for (number, answer) in answers.iter().enumerate() {
        let (now, lasted) = answer.header("x-arrived").unwrap().split_once(' ').unwrap();
        let excess = logged_excess(&log, number).unwrap_or(0);
        let delay = (answer.status == 200).then(|| arithmetic.delay_of(excess));
        // Not answered before its time.
        let lasted = millis(lasted);
        let least = delay.unwrap_or(Duration::ZERO);
        assert!(Duration::from_millis(lasted + 2) >= least, "{answer:?}");
        let at = Timestamp::from_micros((millis(now) - lasted) * 1_000);
        by_nginx.push((at, excess, delay));
    }
    // In the order of their arrival: of one millisecond, the excess says which came first.
    by_nginx.sort_unstable_by_key(|(at, excess, delay)| (*at, delay.is_none(), *excess));
    let gate = limit.gate();
    let mut delayed = 0;
    for (at, excess, by_nginx) in &by_nginx {
        let by_rules = decided(&gate, "one", *at);
        let (Some(nginx), Some(rules)) = (by_nginx, by_rules) else {
            if by_nginx.is_some() == by_rules.is_some() {
                continue;
            }
            // On the edge of the burst the two milliseconds below decide; from then on one has admitted more.
            let beyond = excess.abs_diff(limit.burst * 1_000);
            assert!(beyond <= 2 * limit.count, "{limit:?}: {excess}");
            break;
        };
        // A millisecond by rounding, and one by which the clock of arrivals may differ from that of decisions.
        let difference = nginx.abs_diff(rules);
        assert!(
            difference <= Duration::from_millis(2),
            "{nginx:?}, {rules:?}"
        );
        delayed += u64::from(!rules.is_zero());
    }
    let denied = by_nginx
        .iter()
        .filter(|(.., delay)| delay.is_none())
        .count();
    assert!(delayed > 3 && denied > 0, "{by_nginx:?}");
}

#[test]
fn nginx_and_the_rules_hold_back_a_burst_alike() {
    for limit in LIMITS {
        compare_with_nginx(limit);
    }
}
