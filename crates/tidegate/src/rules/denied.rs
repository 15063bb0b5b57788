//! Custom answers to denied clients: the key `denied` of a rule, and the setting of the same name for all rules. Front
//! ends that answer clients themselves use it; callers that ask on behalf of a client get the plain decision.

use serde_json::{Map, Value, json};

use super::keys::DENIED;
use super::rule::Rule;
use crate::internal::document::{Entry, Fields, Node, Problems, Source, Spot};

/// The most headers of an answer.
const MOST_HEADERS: usize = 16;

/// The placeholders of a text, in braces.
const NAMES: [&str; 3] = ["rule", "limit", "retry_after"];

/// Headers that the answer has by itself, or that belong to the connection.
const TAKEN: [&str; 9] = [
    "retry-after",
    "www-authenticate",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];
/// Reserved headers, by prefix.
const TAKEN_PREFIXES: [&str; 4] = ["ratelimit", "x-ratelimit-", "content-", "grpc-"];

/// A custom answer to denied clients. Texts may contain `{rule}`, `{limit}` and `{retry_after}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DenialAnswer {
    status: Option<u16>,
    title: Option<String>,
    detail: Option<String>,
    headers: Vec<(String, String)>,
}

/// The values of the placeholders of a [`DenialAnswer`].
#[derive(Debug, Clone, Copy)]
pub struct DenialFacts<'d> {
    /// The id of the rule that denied.
    pub rule: &'d str,
    /// The quota of its limit.
    pub limit: u64,
    /// Seconds to wait; `None` if waiting does not help.
    pub retry_after: Option<u64>,
}

impl DenialAnswer {
    /// The answer that a text in YAML describes, such as `{status: 403, title: "Not for you"}`.
    pub fn from_yaml(text: &str) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let node = Source::new("denied", text).read(&mut problems);
        let read = node.and_then(|node| Self::read(&node, Spot::document(), &mut problems));
        match read {
            Some(read) if !problems.has_errors() => Ok(read),
            _ => Err(problems),
        }
    }

    /// Reads the value of a key `denied`.
    #[doc(hidden)]
    pub fn read(node: &Node, spot: Spot, problems: &mut Problems) -> Option<Self> {
        let fields = Fields::new(node, spot, &DENIED, problems)?;
        let status = fields
            .take("status")
            .and_then(|(spot, node)| read_status(node, &spot, problems));
        let [title, detail] = ["title", "detail"].map(|key| {
            let (spot, node) = fields.take(key)?;
            spot.parsed(node, checked_text, problems)
        });
        let mut headers: Vec<(String, String)> = Vec::new();
        if let Some((spot, node)) = fields.take("headers") {
            let entries = spot.entries(node, problems);
            if entries.len() > MOST_HEADERS {
                let message = format!(
                    "there are {} headers; at most {MOST_HEADERS} fit",
                    entries.len()
                );
                problems.error(&node.place, &spot, message);
            }
            for entry in entries {
                let Some(header) = read_header(entry, &spot, problems) else {
                    continue;
                };
                if headers.iter().any(|(name, _)| *name == header.0) {
                    let message = format!("the header `{}` is there twice; keep one", entry.key);
                    problems.error(&entry.key_place, &spot.field(&entry.key), message);
                }
                headers.push(header);
            }
        }
        fields.done(problems);
        Some(Self {
            status,
            title,
            detail,
            headers,
        })
    }

    /// As it is written.
    pub(super) fn written(&self) -> Value {
        let headers = self.headers.iter().cloned();
        let headers: Map<String, Value> =
            headers.map(|(name, value)| (name, value.into())).collect();
        let texts = [("title", &self.title), ("detail", &self.detail)];
        let texts = texts
            .into_iter()
            .filter_map(|(key, text)| Some((key, json!(text.as_ref()?))));
        let status = self.status.map(|status| ("status", json!(status)));
        let headers = (!headers.is_empty()).then(|| ("headers", Value::Object(headers)));
        let all = status.into_iter().chain(texts).chain(headers);
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The status, if it differs from the reason's own.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// The title, if it differs from the reason's own.
    pub fn title(&self, facts: DenialFacts<'_>) -> Option<String> {
        self.title.as_deref().map(|text| facts.put_into(text))
    }

    /// The detail, if it differs from the reason's own.
    pub fn detail(&self, facts: DenialFacts<'_>) -> Option<String> {
        self.detail.as_deref().map(|text| facts.put_into(text))
    }

    /// More headers, their names in lower case. Values are printable ASCII.
    pub fn headers<'d>(
        &'d self,
        facts: DenialFacts<'d>,
    ) -> impl Iterator<Item = (&'d str, String)> {
        let all = self.headers.iter();
        all.map(move |(name, value)| (name.as_str(), facts.put_into(value)))
    }
}

impl Rule {
    /// The answer to denied clients, if it is not the usual one.
    pub fn denied(&self) -> Option<&DenialAnswer> {
        self.denied.as_deref()
    }
}

impl DenialFacts<'_> {
    fn put_into(self, text: &str) -> String {
        if !text.contains('{') {
            return text.to_owned();
        }
        let wait = self.retry_after;
        let wait = wait.map_or_else(|| "never".to_owned(), |wait| wait.to_string());
        let values = [self.rule.to_owned(), self.limit.to_string(), wait];
        let put = |text: String, (name, value): (&str, String)| {
            text.replace(&format!("{{{name}}}"), &value)
        };
        NAMES.into_iter().zip(values).fold(text.to_owned(), put)
    }
}

fn read_status(node: &Node, spot: &Spot, problems: &mut Problems) -> Option<u16> {
    let status = spot.integer(node, 400, 503, problems)?;
    if (500..=502).contains(&status) {
        let message = format!("`{status}` is an error of a server; write 400 to 499, or 503");
        problems.error(&node.place, spot, message);
    }
    u16::try_from(status).ok()
}

fn read_header(entry: &Entry, spot: &Spot, problems: &mut Problems) -> Option<(String, String)> {
    let spot = spot.field(&entry.key);
    let name = match checked_name(&entry.key) {
        Ok(name) => name,
        Err(message) => {
            problems.error(&entry.key_place, &spot, message);
            return None;
        }
    };
    let value = spot.parsed(&entry.value, checked_value, problems)?;
    Some((name, value))
}

fn checked_name(name: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{name}` is not the name of a header"));
    }
    let lower = name.to_ascii_lowercase();
    let begins = |prefix: &&str| lower.starts_with(*prefix);
    if TAKEN.contains(&lower.as_str()) || TAKEN_PREFIXES.iter().any(begins) {
        return Err(format!(
            "the header `{name}` is set by Tidegate or belongs to the connection; choose another"
        ));
    }
    Ok(lower)
}

fn checked_value(value: &str) -> Result<String, String> {
    let is_printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    if !value.bytes().all(is_printable) {
        return Err("the value of a header is one line of printable ASCII".to_owned());
    }
    checked_text(value)
}

/// Checks that all placeholders are known. Other braces are text.
fn checked_text(text: &str) -> Result<String, String> {
    for piece in text.split('{').skip(1) {
        let Some((name, _)) = piece.split_once('}') else {
            continue;
        };
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte == b'_' || byte.is_ascii_lowercase());
        if is_name && !NAMES.contains(&name) {
            return Err(format!(
                "`{{{name}}}` is unknown; a text may have `{{rule}}`, `{{limit}}` and `{{retry_after}}`"
            ));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: DenialFacts<'_> = DenialFacts {
        rule: "login",
        limit: 3,
        retry_after: Some(20),
    };

    #[test]
    fn texts_name_the_rule_the_limit_and_the_wait() {
        let text = "{status: 420, title: 'Slow {down} down', detail: '{rule} allows {limit}, wait {retry_after} s {', headers: {X-Help: 'https://x/{rule}'}}";
        let text = text.replace("{down} ", "");
        let answer = DenialAnswer::from_yaml(&text).unwrap();
        assert_eq!(answer.status(), Some(420));
        assert_eq!(answer.title(FACTS).unwrap(), "Slow down");
        assert_eq!(answer.detail(FACTS).unwrap(), "login allows 3, wait 20 s {");
        let headers: Vec<_> = answer.headers(FACTS).collect();
        assert_eq!(headers, [("x-help", "https://x/login".to_owned())]);
        let never = DenialFacts {
            retry_after: None,
            ..FACTS
        };
        assert!(answer.detail(never).unwrap().contains("wait never s"));
        assert_eq!(
            DenialAnswer::from_yaml("{}").unwrap(),
            DenialAnswer::default()
        );
    }

    #[test]
    fn what_would_break_an_answer_is_refused() {
        let many: Vec<String> = (0..17).map(|number| format!("x-{number}: a")).collect();
        let many = format!("{{headers: {{{}}}}}", many.join(", "));
        for (text, about) in [
            ("{status: 200}", "400"),
            ("{status: 502}", "503"),
            ("{status: 504}", "503"),
            ("{stats: 403}", "did you mean `status`"),
            ("{title: 'wait {seconds}'}", "`{seconds}` is unknown"),
            (
                "{headers: {Retry-After: '1'}}",
                "`Retry-After` is set by Tidegate",
            ),
            (
                "{headers: {RateLimit-Policy: a}}",
                "`RateLimit-Policy` is set by",
            ),
            ("{headers: {X-RateLimit-Limit: a}}", "is set by"),
            ("{headers: {www-authenticate: a}}", "is set by"),
            ("{headers: {Content-Length: a}}", "is set by"),
            ("{headers: {Connection: close}}", "is set by"),
            ("{headers: {Transfer-Encoding: chunked}}", "is set by"),
            ("{headers: {'a b': c}}", "not the name of a header"),
            ("{headers: {x: \"a\\nb\"}}", "one line"),
            ("{headers: {x: \"caf\u{e9}\"}}", "printable ASCII"),
            ("{headers: {x: a, X: b}}", "twice"),
            (&many, "at most 16"),
        ] {
            let problems = DenialAnswer::from_yaml(text).expect_err(text).to_string();
            assert!(problems.contains(about), "{text}: {problems}");
        }
    }
}
