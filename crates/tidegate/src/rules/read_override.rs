//! Reads the key of an override: a value of the first attribute of `per`, its hash, or a network.

use ipnet::{IpNet, Ipv6Net};

use super::grant::GrantIndexes;
use super::networks::Networks;
use super::{RuleSettings, hashed};
use crate::address::{self, key_of};
use crate::attributes::Attributes;

/// The key of an override in the form that requests have.
pub(super) fn override_key(
    per: Option<&[String]>,
    value: &str,
    settings: &RuleSettings,
) -> Result<String, String> {
    let Some(per) = per else {
        // The problem of `per` is reported already.
        return Ok(value.to_owned());
    };
    let Some(first) = per.first() else {
        return Err("overrides go by the first attribute of `per`, and there is none; add one, or remove the override".into());
    };
    if value.is_empty() {
        return Err("an override needs a value; an empty attribute is a missing one".into());
    }
    if first == "ip" {
        return address_key(value, settings);
    }
    if let Some(hash) = hashed::read(value) {
        return hash;
    }
    let mut attributes = Attributes::new();
    attributes
        .insert(first.to_owned(), value.to_owned())
        .map_err(|error| error.to_string())?;
    Ok(attributes.get(first).unwrap_or(value).to_owned())
}

/// The key of an address, or the text of a network of several keys.
fn address_key(value: &str, settings: &RuleSettings) -> Result<String, String> {
    let prefix = settings.ipv6_prefix;
    if let Some(ip) = address::parse(value) {
        return Ok(key_of(ip, prefix).0);
    }
    let refused = || {
        format!(
            "`{value}` is neither an address nor a network; write for example `203.0.113.7`, `10.0.0.0/8` or `2001:db8::/32`"
        )
    };
    let network = address::parse_network(value).map_err(|_| refused())?;
    if let Some(message) = host_bits(value) {
        return Err(message);
    }
    match network {
        IpNet::V6(network) if network.prefix_len() > prefix => {
            let whole = Ipv6Net::new(network.addr(), prefix).map(|network| network.trunc());
            let whole = whole.map_or_else(|_| String::new(), |network| network.to_string());
            Err(format!(
                "IPv6 addresses are counted by /{prefix} (the setting `ipv6_prefix`), so an override cannot be for less; write `{whole}`"
            ))
        }
        network => Ok(key_of_network(network, prefix)),
    }
}

/// The message for a network that has bits set beyond its prefix.
fn host_bits(value: &str) -> Option<String> {
    let written: IpNet = value.parse().ok()?;
    let network = address::parse_network(value).ok()?;
    (written != written.trunc())
        .then(|| format!("`{value}` has bits set beyond its prefix; write `{network}`"))
}

/// The name of a network: the name of its key if it covers only one.
fn key_of_network(network: IpNet, ipv6_prefix: u8) -> String {
    if is_one_key(network, ipv6_prefix) {
        return key_of(network.addr(), ipv6_prefix).0;
    }
    network.to_string()
}

fn is_one_key(network: IpNet, ipv6_prefix: u8) -> bool {
    match network {
        IpNet::V4(network) => network.prefix_len() == 32,
        IpNet::V6(network) => network.prefix_len() == ipv6_prefix,
    }
}

/// The network of an override that covers several keys, if it does.
pub(super) fn network_of(key: &str, ipv6_prefix: u8) -> Option<IpNet> {
    let network = key.parse::<IpNet>().ok();
    network.filter(|network| !is_one_key(*network, ipv6_prefix))
}

/// The overrides of a rule by `ip` that name networks of several keys, by network; none if there are
/// none.
pub(super) fn networks_of(
    per: &[String],
    overrides: &GrantIndexes,
    ipv6_prefix: u8,
) -> Option<Box<Networks<usize>>> {
    if per.first().is_none_or(|first| first != "ip") {
        return None;
    }
    let mut networks = Networks::default();
    let mut is_empty = true;
    for (name, index) in overrides {
        if let Some(network) = network_of(name, ipv6_prefix) {
            *networks.value(network) = *index;
            is_empty = false;
        }
    }
    (!is_empty).then(|| Box::new(networks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str, ipv6_prefix: u8) -> Result<String, String> {
        let settings = RuleSettings {
            ipv6_prefix,
            ..RuleSettings::default()
        };
        override_key(Some(&["ip".to_owned()]), value, &settings)
    }

    #[test]
    fn addresses_and_networks_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("203.0.113.7",             64,     Some("203.0.113.7")),
            ("203.0.113.7/32",          64,     Some("203.0.113.7")),
            ("::ffff:203.0.113.7",      64,     Some("203.0.113.7")),
            ("10.0.0.0/8",              64,     Some("10.0.0.0/8")),
            ("::ffff:10.0.0.0/104",     64,     Some("10.0.0.0/8")),
            ("0.0.0.0/0",               64,     Some("0.0.0.0/0")),
            ("2001:db8::1",             64,     Some("2001:db8::/64")),
            ("2001:DB8::/64",           64,     Some("2001:db8::/64")),
            ("2001:db8::/32",           64,     Some("2001:db8::/32")),
            ("2001:db8::1",             128,    Some("2001:db8::1")),
            ("2001:db8::1/128",         128,    Some("2001:db8::1")),
            ("2001:db8::/64",           128,    Some("2001:db8::/64")),
            ("2001:db8::1",             48,     Some("2001:db8::/48")),
            ("10.1.2.3/8",              64,     None),
            ("2001:db8::1/64",          64,     None),
            ("2001:db8::/65",           64,     None),
            ("2001:db8::/64",           48,     None),
            ("10.0.0.0/33",             64,     None),
            ("10.*",                    64,     None),
            ("user_abc",                64,     None),
        ];
        for (value, prefix, expected) in table {
            assert_eq!(
                key(value, prefix).ok().as_deref(),
                expected,
                "{value} {prefix}"
            );
        }
        let suggested = key("2001:db8:0:1:2::/80", 64).unwrap_err();
        assert!(
            suggested.contains("write `2001:db8:0:1::/64`"),
            "{suggested}"
        );
    }

    #[test]
    fn a_rule_without_networks_keeps_none() {
        let named = |names: &[&str]| -> GrantIndexes {
            names.iter().map(|name| ((*name).to_owned(), 1)).collect()
        };
        let ip = ["ip".to_owned()];
        let keys = named(&["203.0.113.7", "2001:db8::/64"]);
        assert!(networks_of(&ip, &keys, 64).is_none());
        assert!(networks_of(&ip, &keys, 128).is_some());
        assert!(networks_of(&ip, &named(&["10.0.0.0/8"]), 64).is_some());
        assert!(networks_of(&["user_id".to_owned()], &named(&["10.0.0.0/8"]), 64).is_none());
    }
}
