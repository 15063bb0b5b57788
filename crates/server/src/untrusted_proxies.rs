//! Callers of `/v1/authorize` that describe a client's request and are not trusted to: counted, logged at most once a
//! minute for each address, and shown as warnings for a while. Their requests are refused, because with the headers
//! ignored most rules would apply to none of them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tidegate::address::canonical;
use tidegate_listen::clock::Stopwatch;

use crate::telemetry::counter;

/// The addresses that are remembered. Beyond that, calls are counted only.
const MOST_ADDRESSES: usize = 16;
/// How long an address is not logged again.
const LOGGED_EVERY: Duration = Duration::from_mins(1);
/// How long an address is shown after its last call.
const SHOWN_FOR: Duration = Duration::from_mins(10);

/// Untrusted proxies since the start.
pub(crate) struct UntrustedProxies {
    started: Stopwatch,
    count: AtomicU64,
    seen: Mutex<Vec<SeenProxy>>,
}

/// An address, and when it was last logged and seen, as the time since the start.
struct SeenProxy {
    peer: IpAddr,
    logged: Duration,
    last: Duration,
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
        let is_due = |seen: &SeenProxy| now.saturating_sub(seen.logged) >= LOGGED_EVERY;
        let mut all = self.seen.lock();
        if let Some(seen) = all.iter_mut().find(|seen| seen.peer == peer) {
            let is_due = is_due(seen);
            seen.last = now;
            if is_due {
                seen.logged = now;
            }
            return is_due;
        }
        if all.len() >= MOST_ADDRESSES {
            // Only one that could be logged again: otherwise addresses that take turns would fill the log.
            let oldest = all.iter().enumerate().filter(|(_, seen)| is_due(seen));
            let Some((oldest, _)) = oldest.min_by_key(|(_, seen)| seen.last) else {
                return false;
            };
            all.swap_remove(oldest);
        }
        all.push(SeenProxy {
            peer,
            logged: now,
            last: now,
        });
        true
    }

    /// A warning for each address that called recently.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings_at(self.started.elapsed())
    }

    fn warnings_at(&self, now: Duration) -> Vec<String> {
        let all = self.seen.lock();
        let recent = all
            .iter()
            .filter(|seen| now.saturating_sub(seen.last) < SHOWN_FOR);
        recent.map(|seen| refusal(seen.peer)).collect()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "untrusted_proxy",
            "Calls of /v1/authorize that were refused because the proxy is not trusted",
            counter(self.count.load(Ordering::Relaxed)),
        );
    }
}

/// Why a call is refused, and what to change.
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
            let all = (0..=255).filter(|last| proxies.is_logged(peer(*last), seconds(from)));
            all.count()
        };
        assert_eq!([logged(0), logged(1), logged(59)], [MOST_ADDRESSES, 0, 0]);
        assert_eq!(logged(60), MOST_ADDRESSES);
        assert_eq!(proxies.seen.lock().len(), MOST_ADDRESSES);
    }
}
