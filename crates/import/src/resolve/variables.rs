//! Variables that nginx knows by itself, and which attribute each is.

use super::{KeyPiece, KeyResolver};
use crate::report::ImportFindingKind;
use crate::request_test::RequestFact;

/// A piece of a text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextPiece {
    Plain(String),
    Variable(String),
}

/// The pieces of a text such as `$binary_remote_addr$host` or `a${b}c`.
pub(super) fn pieces(text: &str) -> Vec<TextPiece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        let after = &after[1..];
        plain.push_str(before);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, next) = match after
            .strip_prefix('{')
            .and_then(|in_braces| in_braces.split_once('}'))
        {
            Some((name, next)) if name.chars().all(is_name) => (name, next),
            _ => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        if name.is_empty() {
            plain.push('$');
        } else {
            if !plain.is_empty() {
                pieces.push(TextPiece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(TextPiece::Variable(name.to_owned()));
        }
        rest = next;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(TextPiece::Plain(plain));
    }
    pieces
}

/// Attributes that have a meaning of their own, which an argument or a cookie must not take.
const TAKEN: [&str; 5] = ["ip", "path", "host", "method", "tier"];

impl KeyResolver<'_> {
    /// What a variable of nginx is.
    pub(super) fn known_variable(&mut self, name: &str) -> Result<KeyPiece, String> {
        let fact = match name {
            "binary_remote_addr" | "remote_addr" => RequestFact::Address,
            "realip_remote_addr" | "proxy_protocol_addr" => {
                let message = format!(
                    "`${name}` becomes `ip`, which is the address that `trusted_proxies` lead to"
                );
                self.remark(ImportFindingKind::Difference, message);
                RequestFact::Address
            }
            "host" => RequestFact::Host,
            "http_host" => {
                self.remark(
                    ImportFindingKind::Difference,
                    "`$http_host` becomes `host`, which is in lower case and has no port",
                );
                RequestFact::Host
            }
            "server_name" => return Ok(KeyPiece::ServerName),
            "request_method" => RequestFact::Method,
            "uri" | "document_uri" => RequestFact::Path,
            "request_uri" => {
                self.remark(
                    ImportFindingKind::Difference,
                    "`$request_uri` becomes `path`, which is normalised and has no query",
                );
                RequestFact::Path
            }
            _ => RequestFact::Attribute(self.named_variable(name)?),
        };
        Ok(KeyPiece::Fact(fact))
    }

    /// The attribute of `$http_…`, `$arg_…` or `$cookie_…`.
    fn named_variable(&mut self, name: &str) -> Result<String, String> {
        if let Some(header) = name.strip_prefix("http_").filter(|name| !name.is_empty()) {
            let header = header.to_ascii_lowercase().replace('_', "-");
            if [
                "x-forwarded-for",
                "x-real-ip",
                "cf-connecting-ip",
                "true-client-ip",
            ]
            .contains(&header.as_str())
            {
                self.remark(
                    ImportFindingKind::Note,
                    format!("a client can write `{header}`; if a proxy sends it, set `trusted_proxies` and `forwarded_header`, and count by `ip`"),
                );
            }
            return Ok(format!("header.{header}"));
        }
        for (prefix, source) in [("arg_", "query"), ("cookie_", "cookie")] {
            let Some(wanted) = name.strip_prefix(prefix).filter(|name| !name.is_empty()) else {
                continue;
            };
            let lower = wanted.to_ascii_lowercase();
            let attribute = if TAKEN.contains(&lower.as_str()) || source == "cookie" {
                format!("{prefix}{lower}")
            } else {
                lower
            };
            let line = format!("{attribute}: {{{source}: {wanted}}}");
            if !self.identify.contains(&line) {
                self.identify.push(line);
            }
            self.remark(
                ImportFindingKind::Note,
                format!("`${name}` becomes `{attribute}`, which needs the setting `identify` that stands at the top of the rules"),
            );
            return Ok(attribute);
        }
        Err(format!("the variable `${name}` has no attribute"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_by_hand() {
        let plain = |text: &str| TextPiece::Plain(text.to_owned());
        let variable = |text: &str| TextPiece::Variable(text.to_owned());
        #[rustfmt::skip]
        let table = [
            ("",             vec![]),
            ("a",            vec![plain("a")]),
            ("$a",           vec![variable("a")]),
            ("$a$b_1",       vec![variable("a"), variable("b_1")]),
            ("x:$a-y",       vec![plain("x:"), variable("a"), plain("-y")]),
            ("${a}b$",       vec![variable("a"), plain("b$")]),
            ("$$a",          vec![plain("$"), variable("a")]),
            ("${a",          vec![plain("${a")]),
            ("ü$aü",         vec![plain("ü"), variable("a"), plain("ü")]),
        ];
        for (text, expected) in table {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }
}
