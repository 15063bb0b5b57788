//! Logs on stderr, as text or as JSON. Denied requests are sampled, and their keys shown as digests.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate::gate::{Decision, WarnedLimit};
use tidegate::rules::{Rule, RuleSettings, ValueDigest};
use tidegate::{Attributes, Limit, Limiter, Micros, Reason};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::access_log::ascii;
use super::exchanges;
use crate::config::LogSettings;

/// The rate at which denied requests are logged.
const DENIALS: &str = "10/second burst 20";
/// The rate at which one rule logs counters that have reached `warn_at`.
const WARNINGS: &str = "1/second";

/// Starts logging. Only the first call in a process has an effect.
pub fn start(settings: &LogSettings) {
    // The configuration was validated.
    let filter: Targets = settings.level.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let is_renamed = settings.has_keys_of_envoy_ratelimit;
    let _ = if settings.json {
        registry
            .with(
                lines
                    .json()
                    .flatten_event(true)
                    .with_current_span(false)
                    .with_writer(move || AsciiJson {
                        inner: io::stderr(),
                        is_renamed,
                    }),
            )
            .try_init()
    } else {
        registry
            .with(lines.with_ansi(std::io::stderr().is_terminal()))
            .try_init()
    };
}

/// Writes lines of JSON in ASCII alone: text that others choose can neither control nor reorder a terminal.
struct AsciiJson<W> {
    inner: W,
    /// Whether keys are those of envoyproxy/ratelimit.
    is_renamed: bool,
}

impl<W: Write> Write for AsciiJson<W> {
    /// Each line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(json) if self.is_renamed => {
                let renamed = renamed(json).unwrap_or_else(|| json.to_owned());
                self.inner.write_all(ascii(&renamed).as_bytes())?;
            }
            Ok(json) => self.inner.write_all(ascii(json).as_bytes())?,
            Err(_) => self.inner.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A line with the keys of envoyproxy/ratelimit: first the time, the text and the level, then all else.
fn renamed(line: &str) -> Option<String> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    let mut take = |key| fields.remove(key).unwrap_or_default();
    let (time, text, level) = (take("timestamp"), take("message"), take("level"));
    let level = match level.as_str()? {
        "WARN" => "warning".to_owned(),
        level => level.to_lowercase(),
    };
    let mut line = format!(r#"{{"@timestamp":{time},"@message":{text},"level":"{level}""#);
    for (key, value) in fields {
        line = format!("{line},{}:{value}", Value::from(key));
    }
    line.push_str("}\n");
    Some(line)
}

/// Logs counters that have reached `warn_at` of their limit: at most one a second for a rule, and never the key itself.
pub(crate) struct WarningLog {
    sample: Option<Limiter>,
    digests: LoggedKeys,
}

impl WarningLog {
    pub(crate) fn new(digests: LoggedKeys) -> Self {
        Self {
            sample: Limiter::new(WARNINGS).ok(),
            digests,
        }
    }

    pub(crate) fn warned(&self, warned: &WarnedLimit<'_>) {
        let (sample, rule) = (self.sample.as_ref(), warned.rule);
        if sample.is_none_or(|sample| sample.check(rule.id()).is_denied()) {
            return;
        }
        let known = warned.key_digests().iter().map(|(_, digest)| &**digest);
        let known: Vec<&str> = known.collect();
        let key = match &known[..] {
            [] => self.digests.digests(warned.key_values()),
            known => Some(known.join(",")),
        };
        tracing::warn!(
            rule = rule.id(),
            key,
            used = warned.used,
            limit = warned.limit,
            unit = rule.unit().as_str(),
            "reached `warn_at` of its limit"
        );
    }
}

/// Logs which key is denied by which rule: a few a second at most, and never the key itself.
pub(crate) struct DenialLog {
    sample: Option<Limiter>,
    digests: LoggedKeys,
}

/// Shows keys of clients in the log as digests, those of secret values as tables show them.
#[derive(Debug, Clone)]
pub(crate) struct LoggedKeys {
    pub(crate) digest: Arc<ValueDigest>,
    pub(crate) settings: RuleSettings,
}

impl LoggedKeys {
    /// The key of a request by this rule: the digest of each value, with commas between them. `None` if it has no key,
    /// or shares one with all clients.
    pub(crate) fn key(&self, rule: &Rule, attributes: &Attributes<'_>) -> Option<String> {
        let values = rule.key_values(attributes);
        self.digests(values.iter().map(|(name, value)| (*name, &**value)))
    }

    /// The digest of each value, with commas between them. `None` if there are none.
    fn digests<'a>(&self, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<String> {
        let digests = values.into_iter().map(|(name, value)| {
            if self.settings.is_secret(name) {
                self.digest.shown(value)
            } else {
                self.digest.of(value)
            }
        });
        let digests: Vec<String> = digests.collect();
        (!digests.is_empty()).then(|| digests.join(","))
    }
}

impl DenialLog {
    pub(crate) fn new(digests: LoggedKeys) -> Self {
        Self {
            sample: Limiter::new(DENIALS).ok(),
            digests,
        }
    }

    /// The key of a request by a rule, for the log.
    pub(crate) fn key(&self, rule: &Rule, attributes: &Attributes<'_>) -> Option<String> {
        self.digests.key(rule, attributes)
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
        let key = self.key(headline.rule, attributes);
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
            move || AsciiJson {
                inner: Shared(std::sync::Arc::clone(&log)),
                is_renamed: false,
            }
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

    #[test]
    fn a_line_has_the_keys_of_envoyproxy_ratelimit_in_its_place() {
        let line = r#"{"timestamp":"2026-11-18T20:00:00.000000Z","level":"WARN","message":"a \"b\"","file":"x","count":3}"#;
        let expected = r#"{"@timestamp":"2026-11-18T20:00:00.000000Z","@message":"a \"b\"","level":"warning","count":3,"file":"x"}"#;
        assert_eq!(renamed(line), Some(format!("{expected}\n")));
        assert_eq!(renamed("no JSON"), None);
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
    fn keys_are_digests_and_those_of_secrets_are_what_tables_show() {
        let keys = LoggedKeys {
            digest: Arc::new(ValueDigest::new(b"key")),
            settings: RuleSettings::default(),
        };
        let rules = "rules:\n- {id: a, per: [user_id], limit: 1/s}\n- {id: b, per: [api_key, user_id], limit: 1/s}\n- {id: c, per: [], limit: 1/s}\n";
        let rules = tidegate::rules::RuleSet::from_yaml(rules).unwrap();
        let fox = "The quick brown fox jumps over the lazy dog";
        let mut attributes = Attributes::new();
        attributes.insert("user_id", fox).unwrap();
        let key =
            |id: &str, attributes: &Attributes<'_>| keys.key(rules.get(id).unwrap(), attributes);
        assert_eq!(key("a", &attributes).as_deref(), Some("f7bc83f43053"));
        assert_eq!(key("b", &attributes), None);
        attributes.insert("api_key", fox).unwrap();
        let both = Some("The …f7bc83f43053,f7bc83f43053");
        assert_eq!(key("b", &attributes).as_deref(), both);
        assert_eq!(key("c", &attributes), None);
    }
}
