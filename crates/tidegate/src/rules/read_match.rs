//! Reads which requests a rule is about, and which it exempts.

use ipnet::IpNet;

use super::condition::Condition;
use super::keys::MATCH;
use super::matching::Match;
use super::networks::NetworkList;
use super::pattern::{HostPattern, PathPattern};
use super::read_rule::attribute_name;
use crate::attributes::{Attributes, MAX_VALUE};
use crate::internal::document::{Fields, Node, Problems, Spot, Value};

/// How many exceptions a rule may have.
pub(super) const MAX_EXCEPTIONS: usize = 64;

/// `except` and `exempt`: a list whose items are written like `match`.
pub(super) fn read_except(node: &Node, spot: &Spot, problems: &mut Problems) -> Vec<Match> {
    let Value::List(items) = &node.value else {
        let message = format!(
            "this must be a list of exceptions, not {}; write for example `- {{path: /healthz}}`",
            node.kind()
        );
        problems.error(&node.place, spot, message);
        return Vec::new();
    };
    if items.len() > MAX_EXCEPTIONS {
        let message = format!(
            "there may be {MAX_EXCEPTIONS} exceptions at the most, here are {}; put paths or networks together in the list of one item",
            items.len()
        );
        problems.error(&node.place, spot, message);
        return Vec::new();
    }
    let read = |(index, item): (usize, &Node)| {
        let spot = spot.item(index);
        let is_empty = match &item.value {
            Value::Null => true,
            Value::Map(entries) => entries.is_empty(),
            Value::Scalar(_) | Value::List(_) => false,
        };
        if is_empty {
            let message = "an empty item would hold for every request, and the rule would never apply; give it a part such as `path: /healthz`, or remove it";
            problems.error(&item.place, &spot, message);
            return Match::default();
        }
        read(item, spot, problems)
    };
    items.iter().enumerate().map(read).collect()
}

/// `match`.
pub(super) fn read_match(node: &Node, spot: Spot, problems: &mut Problems) -> Match {
    let mut matches = read(node, spot, problems);
    matches.covers_head = matches.method.iter().any(|method| method == "GET");
    matches
}

fn read(node: &Node, spot: Spot, problems: &mut Problems) -> Match {
    let Some(mut fields) = Fields::new(node, spot, &MATCH, problems) else {
        return Match::default();
    };
    fields.refuse(
        "except",
        "this belongs next to `match:`, not below it; indent it less",
        problems,
    );
    for key in MATCH.map(|row| row.name) {
        // An empty value would otherwise match everything.
        if let Some(entry) = fields.key(key)
            && matches!(entry.value.value, Value::Null)
        {
            let message =
                format!("there is nothing after `{key}`; remove the key to match everything");
            problems.error(&entry.key_place, &fields.spot().field(key), message);
        }
    }
    let path = fields.take("path");
    let method = fields.take("method");
    let host = fields.take("host");
    let ip = fields.take("ip");
    let attributes = fields.take("attributes");
    let when = fields.take("when");
    fields.done(problems);
    Match {
        path: all(path, PathPattern::parse, problems),
        method: all(method, read_method, problems),
        covers_head: false,
        host: all(host, HostPattern::parse, problems),
        ip: NetworkList::new(all(ip, read_network, problems)),
        attributes: read_attributes(attributes, problems),
        when: when.and_then(|(spot, node)| spot.parsed(node, Condition::parse, problems)),
    }
}

/// Every item of a list, which must not be empty: nothing would ever be one of its items.
fn all<T>(
    list: Option<(Spot, &Node)>,
    parse: impl Fn(&str) -> Result<T, String>,
    problems: &mut Problems,
) -> Vec<T> {
    let Some((spot, node)) = list else {
        return Vec::new();
    };
    let before = problems.error_count();
    let items = spot.items(node, problems);
    if items.is_empty() && problems.error_count() == before {
        problems.error(
            &node.place,
            &spot,
            "an empty list would match nothing; remove the key to match everything",
        );
    }
    let read = |(spot, node): (Spot, &Node)| spot.parsed(node, &parse, problems);
    items.into_iter().filter_map(read).collect()
}

fn read_method(text: &str) -> Result<String, String> {
    if text.is_empty()
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    {
        return Err(format!("`{text}` is not a method; write for example `GET`"));
    }
    Ok(text.to_ascii_uppercase())
}

fn read_network(text: &str) -> Result<IpNet, String> {
    let refused = || {
        format!(
            "`{text}` is neither an address nor a network; write for example `10.0.0.0/8` or `2001:db8::/32`"
        )
    };
    if let Some(ip) = crate::address::parse(text) {
        return Ok(IpNet::from(ip));
    }
    let net: IpNet = text.parse().map_err(|_| refused())?;
    if net != net.trunc() {
        return Err(format!(
            "`{text}` has bits set beyond its prefix; write `{}`",
            net.trunc()
        ));
    }
    // Requests from such addresses are known by their IPv4 address.
    if let IpNet::V6(v6) = net
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && v6.prefix_len() >= 96
    {
        let net = ipnet::Ipv4Net::new(v4, v6.prefix_len() - 96).map_err(|_| refused())?;
        return Ok(IpNet::V4(net));
    }
    Ok(net)
}

fn read_attributes(
    map: Option<(Spot, &Node)>,
    problems: &mut Problems,
) -> Vec<(String, Vec<String>)> {
    let Some((spot, node)) = map else {
        return Vec::new();
    };
    let mut attributes = Vec::new();
    for entry in spot.entries(node, problems) {
        let spot = spot.field(&entry.key);
        let name = match attribute_name(&entry.key) {
            Ok(name) => name,
            Err(message) => {
                problems.error(&entry.key_place, &spot, message);
                continue;
            }
        };
        let value = |text: &str| read_value(&name, text);
        let values = all(Some((spot, &entry.value)), value, problems);
        attributes.push((name, values));
    }
    attributes
}

/// A value in the form that requests have.
fn read_value(name: &str, text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(
            "an empty attribute is a missing one, so nothing would match; give a value".into(),
        );
    }
    if text.len() > MAX_VALUE {
        return Err(format!("a value may have {MAX_VALUE} bytes at the most"));
    }
    let mut attributes = Attributes::new();
    attributes
        .insert(name.to_owned(), text.to_owned())
        .map_err(|error| error.to_string())?;
    Ok(attributes.get(name).unwrap_or(text).to_owned())
}
