//! Whether a client controls an exception, because it reads only attributes that the client writes.

use super::matching::{HEADER, Match};
use crate::internal::document::{Node, Problems, Spot};

/// Warns of an exception that any client can claim.
pub(super) fn warn_if_client_written(
    item: &Match,
    node: &Node,
    spot: &Spot,
    problems: &mut Problems,
) {
    if is_client_written(item) {
        let message = "a client can write all that this reads, and so escape the rule; add what it cannot write, such as `ip`";
        problems.warning(&node.place, spot, message);
    }
}

/// Whether an item of `except` reads headers or the host, and nothing that a client cannot write.
///
/// A client writes the path and the method, too, but the server acts on these: they do not count either
/// way.
fn is_client_written(item: &Match) -> bool {
    if !item.ip.is_empty() {
        return false;
    }
    let in_condition = match &item.when {
        Some(condition) => match condition.names() {
            Some(names) => names,
            None => return false,
        },
        None => Vec::new(),
    };
    let host = (!item.host.is_empty()).then_some("host");
    let attributes = item.attributes.iter().map(|(name, _)| name.as_str());
    let mut names = attributes
        .chain(host)
        .chain(in_condition)
        .filter(|name| !matches!(*name, "path" | "method"))
        .peekable();
    names.peek().is_some() && names.all(|name| name == "host" || name.starts_with(HEADER))
}

#[cfg(all(test, feature = "cel"))]
mod tests {
    use super::super::condition::Condition;
    use super::*;

    #[test]
    fn only_headers_and_the_host_are_in_the_hands_of_a_client() {
        #[rustfmt::skip]
        let table = [
            (r#"attributes["header.x-a"] == "1""#,                                       true),
            (r#"has(attributes.host) && attributes.host == "a""#,                        true),
            (r#""header.x-a" in attributes"#,                                            true),
            (r#"attributes["header.x-a"].startsWith("b") && attributes.path == "/c""#,   true),
            (r#"attributes.path == "/c" && attributes.method == "GET""#,                 false),
            (r#"attributes["header.x-a"] == "1" && attributes.user_id == "u""#,          false),
            (r#"attributes["header.x-a"] == "1" && cost > 1"#,                           false),
            (r#"attributes.exists(name, name == "header.x-a")"#,                         false),
            (r#"attributes[attributes["header.x-a"]] == "1""#,                           false),
        ];
        for (text, expected) in table {
            let item = Match {
                when: Some(Condition::parse(text).unwrap()),
                ..Match::default()
            };
            assert_eq!(is_client_written(&item), expected, "{text}");
        }
    }
}
