//! The access log: a JSON object for each request of the API and the gateway, without query strings, and with no
//! header that is not listed in the settings.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde_json::{Map, Value, json};
use tidegate::rules::FrontEnd;
use tidegate::{Costs, Reason, Timestamp};

use super::exchanges::{NotedDecision, NotedUsage};
use super::line_writer::LineWriter;
use crate::config::AccessLogSettings;
use crate::seconds::date_time;

/// The access log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    headers: Vec<HeaderName>,
    writer: LineWriter,
}

/// The part of a line that is known when a request arrives.
#[derive(Debug)]
pub(crate) struct AccessEntry {
    pub(crate) at: Timestamp,
    pub(crate) front_end: FrontEnd,
    pub(crate) method: Method,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) peer: IpAddr,
    /// The headers that the settings list.
    pub(crate) headers: Map<String, Value>,
}

/// The part of a line that is known when the request has ended.
#[derive(Debug)]
pub(crate) struct AccessEnd<'e> {
    pub(crate) id: &'e str,
    /// None if the client went away before the answer.
    pub(crate) status: Option<StatusCode>,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    pub(crate) decided: Option<&'e NotedDecision>,
    pub(crate) usage: Option<NotedUsage>,
    /// The beginning of the id of the reservation that the request makes, or is about.
    pub(crate) reservation: Option<String>,
}

impl AccessLog {
    pub(crate) fn open(settings: &AccessLogSettings) -> io::Result<Self> {
        Ok(Self {
            headers: settings.headers.clone(),
            writer: LineWriter::open(&settings.target)?,
        })
    }

    /// Waits until all lines are written, but no longer than `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        self.writer.flush(patience);
    }

    /// How many lines were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.writer.lost()
    }

    /// The headers that are listed in the settings.
    pub(super) fn chosen(&self, headers: &HeaderMap) -> Map<String, Value> {
        let mut chosen = Map::new();
        for name in &self.headers {
            let values: Vec<String> = headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect();
            if !values.is_empty() {
                chosen.insert(name.as_str().to_owned(), json!(values.join(", ")));
            }
        }
        chosen
    }

    pub(super) fn write(&self, entry: &AccessEntry, ended: &AccessEnd<'_>) {
        self.writer.write(line(entry, ended));
    }
}

/// A line, with its line feed.
fn line(entry: &AccessEntry, ended: &AccessEnd<'_>) -> Vec<u8> {
    let decided = ended.decided;
    // A caller of the API asks about clients of its own.
    let client = decided.and_then(|decided| decided.client);
    let client = client.filter(|_| entry.front_end == FrontEnd::Gateway);
    let mut object = json!({
        "time": date_time(entry.at),
        "front_end": entry.front_end.name(),
        "method": entry.method.as_str(),
        "path": entry.path,
        "status": ended.status.map(|status| status.as_u16()),
        "duration": seconds(ended.took),
        "bytes": ended.bytes,
        "client": client.unwrap_or(entry.peer).to_string(),
        "request_id": ended.id,
    });
    if let (Some(decided), Value::Object(object)) = (decided, &mut object) {
        let verdict = if decided.is_allowed {
            "allowed"
        } else {
            "denied"
        };
        object.insert("verdict".to_owned(), json!(verdict));
        object.insert("rule".to_owned(), json!(decided.rule));
        object.insert("reason".to_owned(), json!(decided.reason.map(Reason::name)));
        if decided.count > 1 {
            object.insert("decisions".to_owned(), json!(decided.count));
        }
    }
    if let (Some(reservation), Value::Object(object)) = (&ended.reservation, &mut object) {
        object.insert("reservation".to_owned(), json!(reservation));
    }
    if let (Some(usage), Value::Object(object)) = (&ended.usage, &mut object) {
        object.insert("model".to_owned(), json!(usage.model));
        object.insert("estimate".to_owned(), by_unit(&usage.estimate));
        let settled = usage.settled.as_ref();
        let costs = settled.map(|(_, costs)| by_unit(costs));
        object.insert("settled".to_owned(), json!(costs));
        let result = settled.map(|(result, _)| result.name());
        object.insert("usage".to_owned(), json!(result));
    }
    if let (false, Value::Object(object)) = (entry.headers.is_empty(), &mut object) {
        object.insert("headers".to_owned(), Value::Object(entry.headers.clone()));
    }
    let mut line = ascii(&object.to_string()).into_owned().into_bytes();
    line.push(b'\n');
    line
}

fn by_unit(costs: &Costs) -> Value {
    let units = costs.units().iter();
    let units = units.map(|(unit, cost)| (unit.as_str().to_owned(), json!(cost)));
    Value::Object(units.collect())
}

/// Seconds, in whole microseconds.
fn seconds(span: Duration) -> f64 {
    Duration::from_micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)).as_secs_f64()
}

/// JSON in ASCII alone: text that clients choose cannot reorder a line in a terminal.
pub(super) fn ascii(json: &str) -> Cow<'_, str> {
    if json.is_ascii() && !json.contains('\u{7f}') {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use tidegate_usage::UsageResult;

    use super::*;

    #[test]
    fn a_line_is_ascii_whatever_clients_send() {
        let entry = AccessEntry {
            at: Timestamp::from_micros(1_794_770_000_250_000),
            front_end: FrontEnd::Gateway,
            method: Method::GET,
            path: "/a\u{202e}b\u{7f}\n𝄞".to_owned(),
            peer: IpAddr::from([10, 0, 0, 1]),
            headers: Map::from_iter([("user-agent".to_owned(), json!("x\u{1b}"))]),
        };
        let decided = NotedDecision {
            rule: Some("r".to_owned()),
            is_allowed: false,
            reason: Some(Reason::OverLimit),
            client: Some(IpAddr::from([203, 0, 113, 7])),
            count: 1,
        };
        let ended = AccessEnd {
            id: "abc",
            status: Some(StatusCode::TOO_MANY_REQUESTS),
            bytes: 12,
            took: Duration::from_nanos(1_234_567),
            decided: Some(&decided),
            usage: Some(NotedUsage {
                model: Some("m\u{202e}".to_owned()),
                estimate: Costs::by_unit([("tokens", 60)]).unwrap(),
                settled: Some((
                    UsageResult::Reported,
                    Costs::by_unit([("tokens", 25)]).unwrap(),
                )),
            }),
            reservation: None,
        };
        let written = line(&entry, &ended);
        assert!(
            written
                .iter()
                .all(|byte| matches!(byte, b' '..=b'~' | b'\n'))
        );
        let read: Value = serde_json::from_slice(&written).unwrap();
        let expected = json!({
            "time": "2026-11-15T19:13:20.25Z", "front_end": "gateway", "method": "GET",
            "path": "/a\u{202e}b\u{7f}\n𝄞", "status": 429, "duration": 0.001_234, "bytes": 12,
            "client": "203.0.113.7", "request_id": "abc", "verdict": "denied", "rule": "r",
            "reason": "over_limit", "model": "m\u{202e}", "estimate": {"tokens": 60},
            "settled": {"tokens": 25}, "usage": "reported", "headers": {"user-agent": "x\u{1b}"},
        });
        assert_eq!(read, expected);
        let gone = AccessEnd {
            status: None,
            decided: None,
            usage: None,
            ..ended
        };
        let read: Value = serde_json::from_slice(&line(&entry, &gone)).unwrap();
        assert_eq!((&read["status"], read.get("rule")), (&Value::Null, None));
        assert_eq!(read["client"], "10.0.0.1");
    }
}
