//! Logs on stderr, as text or as JSON. Denied requests are sampled, and their keys hashed.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, IsTerminal as _, Write};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tidegate::gate::Decision;
use tidegate::{Attributes, Limit, Limiter, Micros, Reason};
use tidegate_identity::Secret;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::access_log::ascii;
use super::exchanges;
use crate::config::LogSettings;

/// The rate at which denied requests are logged.
const DENIALS: &str = "10/second burst 20";

/// Starts logging. Only the first call in a process has an effect.
pub fn start(settings: &LogSettings) {
    // The configuration was validated.
    let filter: Targets = settings.level.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let _ = if settings.json {
        registry
            .with(
                lines
                    .json()
                    .flatten_event(true)
                    .with_current_span(false)
                    .with_writer(|| AsciiJson(io::stderr())),
            )
            .try_init()
    } else {
        registry
            .with(lines.with_ansi(std::io::stderr().is_terminal()))
            .try_init()
    };
}

/// Writes lines of JSON in ASCII alone: text that others choose can neither control nor reorder a terminal.
struct AsciiJson<W>(W);

impl<W: Write> Write for AsciiJson<W> {
    /// Each line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(json) => self.0.write_all(ascii(json).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Logs which key is denied by which rule: a few a second at most, and never the key itself.
pub(crate) struct DenialLog {
    sample: Option<Limiter>,
    hasher: LogKeyHasher,
}

/// Hashes keys for the log: with the configured secret, so that an operator can find a client, or with a
/// random one that is new at each start.
enum LogKeyHasher {
    Configured(Box<Hmac<Sha256>>),
    Random(RandomState),
}

impl LogKeyHasher {
    fn new(secret: Option<&Secret>) -> Self {
        // HMAC accepts a key of any length.
        let keyed = secret.and_then(|secret| Hmac::new_from_slice(secret.bytes()).ok());
        keyed.map_or_else(
            || Self::Random(RandomState::new()),
            |keyed| Self::Configured(Box::new(keyed)),
        )
    }

    /// Sixteen hexadecimal digits.
    fn hash(&self, key: &str) -> String {
        let hash = match self {
            Self::Configured(keyed) => {
                let mut keyed = keyed.clone();
                keyed.update(key.as_bytes());
                let hash: [u8; 32] = keyed.finalize().into_bytes().into();
                let (first, _) = hash.split_first_chunk().unwrap_or((&[0; 8], &[]));
                u64::from_be_bytes(*first)
            }
            Self::Random(random) => random.hash_one(key),
        };
        format!("{hash:016x}")
    }
}

impl DenialLog {
    pub(crate) fn new(key_secret: Option<&Secret>) -> Self {
        Self {
            sample: Limiter::new(DENIALS).ok(),
            hasher: LogKeyHasher::new(key_secret),
        }
    }

    /// The hash of a key, for the log.
    pub(crate) fn hashed(&self, key: &str) -> String {
        self.hasher.hash(key)
    }

    pub(crate) fn denied(&self, decision: &Decision, attributes: &Attributes<'_>) {
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let Some(headline) = decision.headline() else {
            return;
        };
        if self
            .sample
            .as_ref()
            .is_none_or(|sample| sample.check("").is_denied())
        {
            return;
        }
        let key = headline.rule.key_text(attributes).unwrap_or_default();
        let key = self.hasher.hash(&key);
        let seconds = |wait: Micros| {
            let wait = std::time::Duration::from(wait).as_secs_f64();
            format!("{wait:.6}s")
        };
        let missing = headline.missing().collect::<Vec<_>>().join(",");
        let request_id = exchanges::current_id();
        let request_id = request_id.as_ref().and_then(|id| id.to_str().ok());
        let retry_after = headline.outcome.retry.wait().map(seconds);
        let rate = headline
            .limit
            .and_then(Limit::rate_unlike_capacity)
            .map(|rate| rate.to_string());
        tracing::info!(
            rule = headline.rule.id(),
            reason = headline.reason.map_or("", Reason::name),
            missing = (!missing.is_empty()).then_some(missing),
            key,
            limit = headline.outcome.limit,
            rate,
            retry_after = retry_after.as_deref().unwrap_or("never"),
            degraded = decision.is_degraded(),
            request_id,
            "denied"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_is_ascii_and_says_the_same() {
        let log = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let writer = {
            let log = std::sync::Arc::clone(&log);
            move || AsciiJson(Shared(std::sync::Arc::clone(&log)))
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(writer).json();
        let by = "\u{9b}31m \u{202e}x \u{2028} \u{1b} \u{7f} ü 🌊";
        let subscriber = tracing_subscriber::registry().with(lines.flatten_event(true));
        tracing::subscriber::with_default(subscriber, || tracing::info!(by, "changed"));
        let line = String::from_utf8(log.lock().clone()).unwrap();
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n');
        assert!(line.bytes().all(is_plain), "{line:?}");
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["by"], by);
    }

    struct Shared(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_knows_the_secret_can_find_a_client_and_others_cannot() {
        let secret = Secret::from("key");
        let known = || LogKeyHasher::new(Some(&secret));
        let fox = "The quick brown fox jumps over the lazy dog";
        assert_eq!(known().hash(fox), "f7bc83f430538424");
        let random = || LogKeyHasher::new(None).hash(fox);
        assert_ne!(random(), random());
    }
}
