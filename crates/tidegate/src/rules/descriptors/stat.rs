//! What a limit is called in stats, as envoyproxy/ratelimit names it: the domain, then each key with its value, with dots
//! between. Values of the file are part of it; those of a request only where the file, or a limit of the call, asks for
//! them. Secret values never are.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::descriptor::{Descriptor, DescriptorStep, Wanted};
use super::{DOMAIN, entries};
use crate::attributes::Attributes;
use crate::rules::{Rule, RuleSet, RuleSettings};

/// The path of the stats of a limit, for one request.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatPath<'r> {
    /// It is the same for all requests.
    Fixed(&'r str),
    /// It has values of the request.
    Named {
        /// The path with them.
        path: String,
        /// The path without, for when there are too many.
        without_values: Cow<'r, str>,
    },
}

impl Rule {
    /// The path of its stats, with the values of the file alone. `None` if it is not written as a descriptor.
    #[doc(hidden)]
    pub fn stat(&self) -> Option<&str> {
        let descriptor = self.descriptor.as_deref()?;
        (!descriptor.is_of_no_file()).then_some(&*descriptor.stat)
    }

    /// The same with every letter as it is written, as envoyproxy/ratelimit lists its limits.
    #[doc(hidden)]
    pub fn descriptor_path(&self) -> Option<String> {
        let descriptor = self.descriptor.as_deref()?;
        let path = || written_path(&descriptor.domain, &descriptor.steps);
        (!descriptor.is_of_no_file()).then(path)
    }
}

impl RuleSet {
    /// The path of the stats of a rule that applies to these attributes. `None` if it is not written as a descriptor.
    #[doc(hidden)]
    pub fn stat_path<'r>(
        &self,
        rule: &'r Rule,
        attributes: &Attributes<'_>,
    ) -> Option<StatPath<'r>> {
        let descriptor = rule.descriptor.as_deref()?;
        if descriptor.is_of_no_file() {
            let settings = self.descriptors.as_ref()?.settings();
            return Some(path_of_entries(attributes, settings));
        }
        if !descriptor.names_values() {
            return Some(StatPath::Fixed(&descriptor.stat));
        }
        Some(StatPath::Named {
            path: descriptor.stat_with_values(attributes),
            without_values: Cow::Borrowed(&descriptor.stat),
        })
    }

    /// The domain of these attributes as it is called in stats, if no rule has it.
    #[doc(hidden)]
    pub fn unknown_domain(&self, attributes: &Attributes<'_>) -> Option<String> {
        if !self.is_by_descriptors() || self.knows_domain(attributes) {
            return None;
        }
        attributes.get(DOMAIN).map(sanitized)
    }
}

impl Descriptor {
    fn names_values(&self) -> bool {
        self.steps.iter().any(|step| step.names_stat)
    }

    /// The path with the values of a request that it matches.
    fn stat_with_values(&self, attributes: &Attributes<'_>) -> String {
        let mut path = self.domain.clone();
        for (step, (_, value)) in self.steps.iter().zip(entries(attributes)) {
            let value = if step.names_stat {
                Cow::Borrowed(value)
            } else {
                written_value(&step.wanted)
            };
            add_part(&mut path, &step.key, &value);
        }
        sanitized(&path)
    }
}

/// The path of the limit at the end of these steps, with the values of the file.
pub(super) fn stat_of_steps(domain: &str, steps: &[DescriptorStep]) -> Box<str> {
    sanitized(&written_path(domain, steps)).into_boxed_str()
}

pub(super) fn written_path(domain: &str, steps: &[DescriptorStep]) -> String {
    let mut path = domain.to_owned();
    for step in steps {
        add_part(&mut path, &step.key, &written_value(&step.wanted));
    }
    path
}

fn written_value(wanted: &Wanted) -> Cow<'_, str> {
    match wanted {
        Wanted::Any => Cow::Borrowed(""),
        Wanted::Text(text) => Cow::Borrowed(text),
        Wanted::Fitting { wildcard, .. } => Cow::Owned(wildcard.to_string()),
    }
}

/// The path of a limit that comes with a call: by all its entries.
fn path_of_entries<'r>(attributes: &Attributes<'_>, settings: &RuleSettings) -> StatPath<'r> {
    let domain = attributes.get(DOMAIN).unwrap_or_default();
    let (mut path, mut keys) = (domain.to_owned(), domain.to_owned());
    for (key, value) in entries(attributes) {
        let value = if settings.is_secret(key) { "" } else { value };
        add_part(&mut path, key, value);
        add_part(&mut keys, key, "");
    }
    StatPath::Named {
        path: sanitized(&path),
        without_values: Cow::Owned(sanitized(&keys)),
    }
}

fn add_part(path: &mut String, key: &str, value: &str) {
    path.push('.');
    path.push_str(key);
    if !value.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(path, "_{value}");
    }
}

/// A path without what would end a line or a part of it: `:`, `|`, control characters, and the dots of IPv4 addresses.
fn sanitized(path: &str) -> String {
    let is_reserved = |c: char| matches!(c, ':' | '|') || c.is_control();
    // Most paths have none, and characters of ASCII are looked at as bytes.
    let is_suspect = |byte: u8| matches!(byte, b':' | b'|' | 0..=31 | 127..);
    let mut path = if path.bytes().any(is_suspect) {
        path.replace(is_reserved, "_")
    } else {
        path.to_owned()
    };
    let mut index = 0;
    while index < path.len() {
        let rest = &path.as_bytes()[index..];
        let Some(digit) = rest.iter().position(u8::is_ascii_digit) else {
            break;
        };
        index += digit;
        match ipv4_length(&path.as_bytes()[index..]) {
            Some(length) => {
                let range = index..index + length;
                let address = path[range.clone()].replace('.', "_");
                path.replace_range(range, &address);
                index += length;
            }
            None => index += 1,
        }
    }
    path
}

/// How many bytes at the start look like an IPv4 address: four groups of one to three digits.
fn ipv4_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    for group in 1..=4 {
        let rest = bytes[length..].iter();
        let digits = rest.take(3).take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        if digits == 0 {
            return None;
        }
        length += digits;
        if group < 4 {
            if bytes.get(length) != Some(&b'.') {
                return None;
            }
            length += 1;
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internal::document::Source;

    const FILE: &str = "
        domain: web
        descriptors:
          - key: path
            value: /a
            rate_limit: {unit: hour, requests_per_unit: 3}
            descriptors:
              - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: plain, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: detailed, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: named, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: star, value: a*, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: named_star, value: a*, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: detailed_star, value: a*, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: shared, value: a*, share_threshold: true, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: api_key, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - {key: ip, value: 10.0.0.0/8, rate_limit: {unit: hour, requests_per_unit: 3}}
          - key: outer
            value_to_metric: true
            descriptors:
              - {key: inner, rate_limit: {unit: hour, requests_per_unit: 3}}
              - {key: exact, value: x, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
          - key: hidden
            descriptors:
              - {key: detailed, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
              - {key: named, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 3}}
    ";

    fn rules() -> RuleSet {
        RuleSet::read(&Source::new("rules", FILE), &RuleSettings::default()).unwrap()
    }

    #[test]
    fn paths_by_hand() {
        let rules = rules();
        #[rustfmt::skip]
        let table = [
            // entries                                  path                        with the values of the file
            (vec![("path", "/a")],                      "web.path_/a",              None),
            (vec![("path", "/a"), ("user", "u")],       "web.path_/a.user",         None),
            (vec![("plain", "p")],                      "web.plain",                None),
            (vec![("detailed", "d")],                   "web.detailed_d",           Some("web.detailed")),
            (vec![("detailed", "")],                    "web.detailed",             Some("web.detailed")),
            (vec![("named", "n:1|2\n")],                "web.named_n_1_2_",         Some("web.named")),
            (vec![("named", "172.18.0.1")],             "web.named_172_18_0_1",     Some("web.named")),
            (vec![("star", "abc")],                     "web.star_a*",              None),
            (vec![("named_star", "abc")],               "web.named_star_abc",       Some("web.named_star_a*")),
            (vec![("detailed_star", "abc")],            "web.detailed_star_abc",    Some("web.detailed_star_a*")),
            (vec![("shared", "abc")],                   "web.shared_a*",            None),
            (vec![("api_key", "k")],                    "web.api_key",              None),
            (vec![("ip", "10.0.0.0/8")],                "web.ip_10_0_0_0/8",        None),
            (vec![("outer", "o"), ("inner", "i")],      "web.outer_o.inner",        Some("web.outer.inner")),
            (vec![("outer", "o"), ("exact", "x")],      "web.outer_o.exact_x",      Some("web.outer.exact_x")),
            (vec![("hidden", "h"), ("detailed", "d")],  "web.hidden_h.detailed_d",  Some("web.hidden.detailed")),
            (vec![("hidden", "h"), ("named", "n")],     "web.hidden.named_n",       Some("web.hidden.named")),
        ];
        for (entries, expected, without) in table {
            let mut attributes = Attributes::new();
            attributes.push("domain", "web");
            for (key, value) in entries {
                attributes.push(key, value);
            }
            let rule = rules.descriptor_rule(&attributes).unwrap();
            let expected = match without {
                None => StatPath::Fixed(expected),
                Some(without) => StatPath::Named {
                    path: expected.to_owned(),
                    without_values: Cow::Borrowed(without),
                },
            };
            assert_eq!(rules.stat_path(rule, &attributes), Some(expected));
            let in_file =
                without.or(rules
                    .stat_path(rule, &attributes)
                    .and_then(|path| match path {
                        StatPath::Fixed(path) => Some(path),
                        StatPath::Named { .. } => None,
                    }));
            assert_eq!(rule.stat(), in_file);
        }
    }

    #[test]
    fn a_limit_of_the_call_is_named_by_its_entries() {
        let rules = rules();
        let mut attributes = Attributes::new();
        attributes.push("domain", "web");
        attributes.push("user", "u:1");
        attributes.push("api_key", "k");
        attributes.push("empty", "");
        let rule = Rule::ad_hoc(crate::rules::Grant::Blocked);
        let expected = StatPath::Named {
            path: "web.user_u_1.api_key.empty".to_owned(),
            without_values: Cow::Borrowed("web.user.api_key.empty"),
        };
        assert_eq!(rules.stat_path(&rule, &attributes), Some(expected));
        assert_eq!(rule.stat(), None);
    }

    #[test]
    fn only_the_domain_of_no_rule_is_unknown() {
        let rules = rules();
        for (domain, expected) in [("web", None), ("a:b", Some("a_b"))] {
            let mut attributes = Attributes::new();
            attributes.push("domain", domain);
            let unknown = rules.unknown_domain(&attributes);
            assert_eq!(unknown.as_deref(), expected);
        }
    }

    #[test]
    fn the_path_as_it_is_written_keeps_every_letter() {
        let rules = rules();
        let path = |stat: &str| {
            let rule = rules.iter().find(|rule| rule.stat() == Some(stat));
            rule.unwrap().descriptor_path()
        };
        assert_eq!(
            path("web.ip_10_0_0_0/8").as_deref(),
            Some("web.ip_10.0.0.0/8")
        );
    }

    #[test]
    fn addresses_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("domain.masked_remote_address_0.0.0.0/0",  "domain.masked_remote_address_0_0_0_0/0"),
            ("a.1.2.3",                                 "a.1.2.3"),
            ("a.1.2.3.4",                               "a.1_2_3_4"),
            ("1.2.3.4.5.6.7.8",                         "1_2_3_4.5_6_7_8"),
            ("1234.5.6.7890",                           "1234_5_6_7890"),
            ("999.999.999.999",                         "999_999_999_999"),
            ("1.2.3.",                                  "1.2.3."),
            ("1..2.3.4.5",                              "1..2_3_4_5"),
            ("ü1.2.3.4ü",                               "ü1_2_3_4ü"),
            ("٣.1.2.3",                                 "٣.1.2.3"),
            ("::1|\r\n",                                "__1___"),
        ];
        for (path, expected) in table {
            assert_eq!(sanitized(path), expected);
        }
    }
}
