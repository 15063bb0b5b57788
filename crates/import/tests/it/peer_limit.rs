//! A limit of nginx for comparisons: its configuration, the rules that are imported from it, and its arithmetic.

use std::time::Duration;

use tidegate::{Attributes, Gate, ManualClock, MemoryStore, Micros, Timestamp};
use tidegate_testkit::timeline::START;

use super::support::{import, rules};

/// Which admitted requests nginx holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerDelay {
    /// `nodelay`.
    None,
    /// Those beyond the first.
    All,
    /// `delay=`.
    After(u64),
}

/// A zone and its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerLimit {
    pub(crate) count: u64,
    pub(crate) is_per_minute: bool,
    pub(crate) burst: u64,
    pub(crate) delay: PeerDelay,
}

impl PeerLimit {
    pub(crate) fn window(self) -> Micros {
        if self.is_per_minute {
            Micros::MINUTE
        } else {
            Micros::SECOND
        }
    }

    pub(crate) fn http(self) -> String {
        let Self { count, burst, .. } = self;
        let unit = if self.is_per_minute { 'm' } else { 's' };
        let delay = match self.delay {
            PeerDelay::None => " nodelay".to_owned(),
            PeerDelay::All => String::new(),
            PeerDelay::After(after) => format!(" delay={after}"),
        };
        format!(
            "limit_req_zone $http_x_key zone=one:1m rate={count}r/{unit};
  limit_req_status 429; limit_req_log_level warn;
  server {{
    listen 127.0.0.1:PORT; root FOLDER; keepalive_requests 1000000; error_log FOLDER/limits.log info;
    add_header X-Arrived \"$msec $request_time\" always;
    location / {{ limit_req zone=one burst={burst}{delay}; }}
  }}"
        )
    }

    /// The gate with the rules that are written for it.
    pub(crate) fn gate(self) -> Gate {
        let imported = import(&self.http()).unwrap();
        Gate::with_clock(
            MemoryStore::new(),
            rules(&imported),
            ManualClock::new(START),
        )
    }
}

/// How long the rules hold a request back; nothing if they deny it.
pub(crate) fn decided(gate: &Gate, key: &str, at: Timestamp) -> Option<Duration> {
    let mut request = Attributes::new().at(at);
    request.insert("header.x-key", key).unwrap();
    request.insert("path", "/").unwrap();
    let decision = gate.try_decide(&request).unwrap();
    decision.is_allowed().then(|| decision.delay())
}

/// The time of a request, whether nginx admitted it, and whether the rules did.
pub(crate) type DecidedTwice = (Timestamp, bool, bool);

/// By how many requests two lists of decisions differ at the most, in any interval of this length.
pub(crate) fn largest_difference(decided: &[DecidedTwice], window: Micros) -> i64 {
    let (by_nginx, by_rules) = most_beyond(decided, window);
    by_nginx.max(by_rules)
}

/// How many requests nginx admitted at the most beyond the rules in any interval of this length, and the rules beyond nginx.
pub(crate) fn most_beyond(decided: &[DecidedTwice], window: Micros) -> (i64, i64) {
    let mut sums = vec![0_i64];
    for (_, by_nginx, by_rules) in decided {
        let difference = i64::from(*by_nginx) - i64::from(*by_rules);
        sums.push(sums.last().unwrap() + difference);
    }
    let before = |at: Timestamp| decided.partition_point(|(other, ..)| *other < at);
    let (mut by_nginx, mut by_rules) = (0, 0);
    for (at, ..) in decided {
        // Intervals that begin with this request, that end just before it, and that end with it.
        let one = Micros::new(1);
        for from in [*at, *at - window, *at + one - window] {
            let difference = sums[before(from + window)] - sums[before(from)];
            by_nginx = by_nginx.max(difference);
            by_rules = by_rules.max(-difference);
        }
    }
    (by_nginx, by_rules)
}

/// The arithmetic of nginx: thousandths of a request, whole milliseconds.
pub(crate) struct Thousandths {
    rate: u64,
    burst: u64,
    /// From which excess on a request is held back.
    delay: Option<u64>,
    state: Option<(u64, u64)>,
}

impl Thousandths {
    pub(crate) fn new(limit: PeerLimit) -> Self {
        let scale = if limit.is_per_minute { 60 } else { 1 };
        Self {
            rate: limit.count * 1_000 / scale,
            burst: limit.burst * 1_000,
            delay: match limit.delay {
                PeerDelay::None => None,
                PeerDelay::All => Some(0),
                PeerDelay::After(after) => Some(after * 1_000),
            },
            state: None,
        }
    }

    /// How long a request is held back; nothing if it is denied.
    pub(crate) fn decide(&mut self, at: Timestamp) -> Option<Duration> {
        let now = at.as_micros() / 1_000;
        let excess = match self.state {
            None => 0,
            Some((excess, last)) => {
                (excess + 1_000).saturating_sub(self.rate * (now - last) / 1_000)
            }
        };
        if excess > self.burst {
            return None;
        }
        self.state = Some((excess, now));
        Some(self.delay_of(excess))
    }

    /// How long a request with this excess is held back.
    pub(crate) fn delay_of(&self, excess: u64) -> Duration {
        let beyond = self.delay.map_or(0, |delay| excess.saturating_sub(delay));
        Duration::from_millis(beyond * 1_000 / self.rate)
    }
}
