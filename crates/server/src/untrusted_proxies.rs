//! Callers of `/v1/authorize` that describe a client's request and are not trusted to: counted, logged at most once a
//! minute for each address, and shown as warnings for a while. Their requests are refused, because with the headers
//! ignored most rules would apply to none of them. Any caller can be one, so all of this is bounded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tidegate::address::canonical;
use tidegate_listen::clock::Stopwatch;

use crate::telemetry::counter;

/// The addresses that are remembered; of IPv6, the networks of 64 bits. Beyond that, calls are counted only.
const MOST_ADDRESSES: usize = 1_024;
/// How long an address is not logged again.
const LOGGED_EVERY: Duration = Duration::from_mins(1);
/// The lines in the log in that time, for all addresses.
const MOST_LINES: usize = 16;
/// How long an address is shown after its last call.
const SHOWN_FOR: Duration = Duration::from_mins(10);
/// The addresses that are shown: those with the most calls.
const MOST_SHOWN: usize = 64;

/// Untrusted proxies since the start.
pub(crate) struct UntrustedProxies {
    started: Stopwatch,
    count: AtomicU64,
    seen: Mutex<SeenProxies>,
}

/// Times are since the start.
#[derive(Default)]
struct SeenProxies {
    by_network: HashMap<IpAddr, SeenProxy>,
    /// When the lines in the log were first counted, and how many there have been since.
    lines: (Duration, usize),
}

/// An address, and when it was last logged and seen.
struct SeenProxy {
    peer: IpAddr,
    calls: u64,
    logged: Option<Duration>,
    last: Duration,
}

impl SeenProxy {
    fn is_shown(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) < SHOWN_FOR
    }
}

impl SeenProxies {
    /// Notes a call. Whether it is to be logged.
    fn note(&mut self, peer: IpAddr, now: Duration) -> bool {
        let network = network_of(peer);
        let is_full = self.by_network.len() >= MOST_ADDRESSES;
        if is_full && !self.by_network.contains_key(&network) {
            self.by_network.retain(|_, seen| seen.is_shown(now));
            if self.by_network.len() >= MOST_ADDRESSES {
                return false;
            }
        }
        let seen = self.by_network.entry(network).or_insert(SeenProxy {
            peer,
            calls: 0,
            logged: None,
            last: now,
        });
        (seen.peer, seen.last) = (peer, now);
        seen.calls = seen.calls.saturating_add(1);
        let is_past = |time: Duration| now.saturating_sub(time) >= LOGGED_EVERY;
        if is_past(self.lines.0) {
            self.lines = (now, 0);
        }
        let is_due = seen.logged.is_none_or(is_past) && self.lines.1 < MOST_LINES;
        if is_due {
            seen.logged = Some(now);
            self.lines.1 += 1;
        }
        is_due
    }
}

/// The network that one host may control.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

impl UntrustedProxies {
    pub(crate) fn new() -> Self {
        Self {
            started: Stopwatch::start(),
            count: AtomicU64::new(0),
            seen: Mutex::default(),
        }
    }

    /// Counts a call, and logs it unless one of the same address was logged recently.
    pub(crate) fn note(&self, peer: IpAddr) {
        let peer = canonical(peer);
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.is_logged(peer, self.started.elapsed()) {
            tracing::warn!(%peer, "{}", refusal(peer));
        }
    }

    fn is_logged(&self, peer: IpAddr, now: Duration) -> bool {
        self.seen.lock().note(peer, now)
    }

    /// A warning for each address that called recently.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings_at(self.started.elapsed())
    }

    fn warnings_at(&self, now: Duration) -> Vec<String> {
        let all = self.seen.lock();
        let recent = all.by_network.values().filter(|seen| seen.is_shown(now));
        let mut recent: Vec<_> = recent.map(|seen| (seen.calls, seen.peer)).collect();
        drop(all);
        recent.sort_unstable_by(|one, other| other.cmp(one));
        let shown = recent.iter().take(MOST_SHOWN);
        let mut warnings: Vec<String> = shown.map(|(_, peer)| refusal(*peer)).collect();
        if recent.len() > MOST_SHOWN {
            let more = recent.len() - MOST_SHOWN;
            warnings.push(format!(
                "{more} more addresses describe requests to /v1/authorize and are not trusted proxies"
            ));
        }
        warnings
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "untrusted_proxy",
            "Calls of /v1/authorize that were refused because the proxy is not trusted",
            counter(self.count.load(Ordering::Relaxed)),
        );
    }
}

/// The message of a refused call, with the setting to change.
pub(crate) fn refusal(peer: IpAddr) -> String {
    let peer = canonical(peer);
    format!(
        "`{peer}` describes requests to /v1/authorize and is not a trusted proxy, so all of them are refused: add `{peer}` to `trusted_proxies`, or let the proxy send a token of scope `check` in `X-Tidegate-Token`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn an_address_is_logged_once_a_minute_and_shown_for_ten() {
        let proxies = UntrustedProxies::new();
        for (at, is_logged) in [(0, true), (1, false), (59, false), (60, true), (119, false)] {
            assert_eq!(proxies.is_logged(peer(1), seconds(at)), is_logged, "{at}");
        }
        assert!(proxies.is_logged(peer(2), seconds(119)), "another one");
        assert_eq!(proxies.warnings_at(seconds(718)).len(), 2);
        assert!(proxies.is_logged(peer(2), seconds(700)));
        let warnings = proxies.warnings_at(seconds(719));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("`10.0.0.2` to `trusted_proxies`"));
        assert!(proxies.warnings_at(seconds(1_300)).is_empty());
    }

    #[test]
    fn many_addresses_fill_neither_the_memory_nor_the_log() {
        let proxies = UntrustedProxies::new();
        let logged = |from: u64| {
            let all = (0..4_096_u32).filter(|last| {
                let peer = IpAddr::from((10 << 24 | last).to_be_bytes());
                proxies.is_logged(peer, seconds(from))
            });
            all.count()
        };
        assert_eq!([logged(0), logged(1), logged(59)], [MOST_LINES, 0, 0]);
        assert_eq!(logged(60), MOST_LINES);
        assert_eq!(proxies.seen.lock().by_network.len(), MOST_ADDRESSES);
        let warnings = proxies.warnings_at(seconds(60));
        assert_eq!(warnings.len(), MOST_SHOWN + 1);
        assert!(
            warnings[MOST_SHOWN].starts_with("960 more addresses"),
            "{warnings:?}"
        );
        let late = IpAddr::from([192, 0, 2, 1]);
        assert!(proxies.is_logged(late, seconds(1_300)));
        assert_eq!(proxies.warnings_at(seconds(1_300)).len(), 1);
    }

    #[test]
    fn a_proxy_is_named_although_others_call() {
        let proxies = UntrustedProxies::new();
        for last in 0..200 {
            proxies.is_logged(peer(last), seconds(0));
        }
        let proxy = IpAddr::from([192, 0, 2, 1]);
        let logged = [1, 2, 60].map(|at| proxies.is_logged(proxy, seconds(at)));
        assert_eq!(logged, [false, false, true]);
        let warnings = proxies.warnings_at(seconds(599));
        assert!(warnings[0].contains("`192.0.2.1`"), "{warnings:?}");
        assert!(proxies.warnings_at(seconds(599)).len() > MOST_SHOWN);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one() {
        let proxies = UntrustedProxies::new();
        for host in 0..2_000_u128 {
            let peer = Ipv6Addr::from_bits(0x2001_0db8 << 96 | host);
            assert_eq!(proxies.is_logged(peer.into(), seconds(1)), host == 0);
        }
        let warnings = proxies.warnings_at(seconds(1));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("`2001:db8::7cf`"), "{warnings:?}");
    }
}
