//! Running in place of envoyproxy/ratelimit: whether its variables are read, and their place among the settings.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use tidegate::document::{Entry, Node, Place, Problems, Spot};
use tidegate_ratelimit::EnvoyRatelimit;
use tidegate_ratelimit::variables::{self, Environment, ReadVariables, VariableSetting};

use super::{Overrides, SETTINGS, Setting};

const KEY: &str = "as";
const VARIABLE: &str = "TIDEGATE_AS";

/// The sources of rules, of which there is one.
const SOURCES: [&str; 2] = ["rules", "xds"];

/// What the variables say, if the flag or `TIDEGATE_AS` asks for them.
pub(super) fn read(overrides: &Overrides<'_>, problems: &mut Problems) -> Option<ReadVariables> {
    let flag = overrides.flags.iter().find(|(key, _)| *key == KEY);
    let variable = || (overrides.environment)(VARIABLE).filter(|value| !value.is_empty());
    let node = match flag {
        Some((_, value)) => Node::setting("--as", value),
        None => Node::setting(VARIABLE, &variable()?),
    };
    Spot::document().one_of(&node, &[(EnvoyRatelimit::NAME, ())], problems)?;
    let environment = Environment {
        variable: overrides.environment,
        names: &overrides.variables,
        address: &address_of,
        exists: &Path::exists,
    };
    Some(variables::read(&environment, problems))
}

/// The address of a host; of several, one of IPv4, as programs in Go listen.
fn address_of(host: &str) -> Option<IpAddr> {
    let known: Vec<SocketAddr> = (host, 0).to_socket_addrs().ok()?.collect();
    let first = known.iter().find(|address| address.is_ipv4());
    first.or(known.first()).map(SocketAddr::ip)
}

/// Puts the settings that variables make among those of the file: defaults of envoyproxy/ratelimit below them, all else
/// above them. What Tidegate's own variables and flags say comes after this.
pub(super) fn add(entries: &mut Vec<Entry>, read: &ReadVariables, overrides: &Overrides<'_>) {
    let is_source = |key: &str| SOURCES.contains(&key);
    let is_chosen = overrides.has("rules");
    let mut made: Vec<_> = read
        .settings
        .iter()
        .filter(|made| is_setting(made.key))
        .collect();
    made.retain(|made| !(is_chosen && is_source(made.key)));
    let replaces_source = made
        .iter()
        .any(|made| is_source(made.key) && !made.is_default);
    entries.retain(|entry| !((replaces_source || is_chosen) && is_source(&entry.key)));
    for made in made {
        let in_file = |key: &str| {
            let is_same =
                |entry: &Entry| entry.key == key || is_source(&entry.key) && is_source(key);
            entries.iter().any(is_same)
        };
        if made.is_default && in_file(made.key) {
            continue;
        }
        entries.retain(|entry| entry.key != made.key);
        let key_place = match &made.value.place {
            Place::Setting(name) => Place::Setting(name.clone()),
            place => place.clone(),
        };
        entries.push(Entry {
            key: made.key.to_owned(),
            key_place,
            value: made.value.clone(),
        });
    }
}

/// Variables that the image sets for every server in it. They do not replace what variables of envoyproxy/ratelimit
/// say.
const OF_IMAGE: [(&str, &str); 2] = [
    ("TIDEGATE_HTTP", "0.0.0.0:8080"),
    ("TIDEGATE_GRPC", "0.0.0.0:8081"),
];

/// Whether a variable of Tidegate is one of the image, for a setting that variables of envoyproxy/ratelimit make.
pub(super) fn is_of_image(read: &ReadVariables, key: &str, (name, value): (&str, &str)) -> bool {
    let is_made = |made: &VariableSetting| made.key == key && !made.is_default;
    OF_IMAGE.contains(&(name, value)) && read.settings.iter().any(is_made)
}

fn is_setting(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key.name == key)
}

impl Overrides<'_> {
    /// Whether a variable of Tidegate or a flag gives this setting.
    fn has(&self, key: &str) -> bool {
        let variable = SETTINGS.iter().find(|setting| setting.key.name == key);
        let variable = variable.and_then(Setting::variable);
        self.flags.iter().any(|(flag, _)| *flag == key)
            || variable.is_some_and(|name| {
                (self.environment)(&name).is_some_and(|value| !value.is_empty())
            })
    }
}

#[cfg(test)]
mod tests;
