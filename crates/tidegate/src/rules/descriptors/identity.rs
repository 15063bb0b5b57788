//! The ids of rules that are written as descriptors: the way to them, as far as an id can say it.

use super::descriptor::{DescriptorStep, Wanted};

/// How long an id may be.
const LONGEST: usize = 64;
/// The length of the suffix that identifies the exact path, with its dash: 64 bits, so that the routes of a large
/// gateway do not collide, which would refuse all of its limits.
const MARK: usize = 17;

/// An id for the limit at the end of these steps: `messaging.message_type_marketing.to_number`. Where
/// the steps cannot be written in the letters of an id, or could be mistaken for others, it ends with a
/// hash of the exact steps.
pub(super) fn id_of(domain: &str, steps: &[DescriptorStep]) -> String {
    let mut names = vec![domain.to_owned()];
    let mut exact = length_and(domain);
    for step in steps {
        exact.push_str(&length_and(&step.key));
        names.push(match &step.wanted {
            Wanted::Any => step.key.clone(),
            Wanted::Text(text) => {
                exact.push_str(&length_and(text));
                format!("{}_{text}", step.key)
            }
            Wanted::Fitting { wildcard, .. } => {
                let text = wildcard.to_string();
                exact.push_str(&length_and(&text));
                format!("{}_{text}", step.key)
            }
        });
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = names.iter().all(|name| name.bytes().all(is_plain));
    if !fits {
        names = names.iter().map(|name| readable(name)).collect();
    }
    let mut id = names.join(".");
    let begins = id
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins {
        id.insert(0, 'd');
    }
    if fits && begins && id.len() <= LONGEST {
        return id;
    }
    id.truncate(LONGEST - MARK);
    format!("{id}-{:016x}", fnv_1a(&exact))
}

/// The hash FNV-1a of a text.
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A name in the letters of an id: `path_v1-any` for `path_/v1/*`.
fn readable(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = name.replace('*', "/any/");
    let words = name.split(|c| !is_plain(c)).filter(|word| !word.is_empty());
    let mut text = String::new();
    for word in words {
        if !text.is_empty() && !text.ends_with(['_', '-']) {
            text.push('-');
        }
        text.push_str(word);
    }
    text
}

/// A text that does not flow into the next.
fn length_and(text: &str) -> String {
    format!("{}:{text}", text.len())
}

#[cfg(test)]
mod tests {
    use super::super::wildcard::Wildcard;
    use super::*;

    fn step(key: &str, value: &str) -> DescriptorStep {
        let wanted = match Wildcard::parse(value) {
            Some(wildcard) => Wanted::Fitting {
                wildcard,
                is_shared: false,
            },
            None if value.is_empty() => Wanted::Any,
            None => Wanted::Text(value.to_owned()),
        };
        DescriptorStep {
            key: key.to_owned(),
            wanted,
            names_stat: false,
        }
    }

    #[test]
    fn ids_by_hand() {
        let long = "x".repeat(80);
        let cut = format!("a.k_{}-", "x".repeat(43));
        #[rustfmt::skip]
        let table = [
            // domain       steps                                       id                          marked
            ("messaging",   vec![step("type", "sms"), step("to", "")],  "messaging.type_sms.to",    false),
            ("a",           vec![step("path", "/v1")],                  "a.path_v1-",               true),
            ("web",         vec![step("path", "/*")],                   "web.path_any-",            true),
            ("a",           vec![step("path", "/v1/*/x*")],             "a.path_v1-any-x-any-",     true),
            ("a",           vec![step("k", "Grüße, Welt")],             "a.k_Gr-e-Welt-",           true),
            ("a",           vec![step("k", "**")],                      "a.k_any-",                 true),
            ("a",           vec![step("ip", "10.0.0.1/8")],             "a.ip_10.0.0.1-8-",         true),
            ("a/b",         vec![step("k", "//")],                      "a-b.k_-",                  true),
            ("a.b",         vec![step("k", "")],                        "a.b.k-",                   true),
            ("_a",          vec![step("k", "")],                        "d_a.k-",                   true),
            ("a",           vec![step("k", &long)],                     cut.as_str(),               true),
        ];
        for (domain, steps, expected, is_marked) in table {
            let id = id_of(domain, &steps);
            let mark = id.strip_prefix(expected).map(str::len);
            assert_eq!(mark, Some(if is_marked { MARK - 1 } else { 0 }), "{id}");
        }
        let id = |value: &str| id_of("a", &[step("path", value)]);
        assert_ne!(id("/v*"), id("/w*"));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv_1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a("foobar"), 0x8594_4171_f739_67e8);
    }

    /// These two have the same hash in 32 bits.
    #[test]
    fn routes_of_a_large_gateway_have_different_ids() {
        let id = |route: usize| {
            let name = format!("httproute/production/checkout-{route}/rule/0/match/0/*");
            let steps = [step(&name, &name), step("rule-0-match-0", "")];
            id_of("envoy-gateway/production/https", &steps)
        };
        assert_ne!(id(61_835), id(57_995));
        assert_eq!(id(1).len(), LONGEST);
    }
}
