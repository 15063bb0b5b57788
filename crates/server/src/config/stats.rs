//! The settings of the stats that envoyproxy/ratelimit has: `statsd`, `prometheus`, `near_limit_ratio` and `stat_names`.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate::Micros;
use tidegate::document::{Entry, Fields, Node, Problems, Spot, Value};
use tidegate_ratelimit::stats::{Mogrifier, NearLimitRatio, StatsdDialect, TimeUnit};

use super::read::{listen_address, number, setting, span, word};
use super::settings::{MOGRIFIER, PROMETHEUS, STATSD};

const SHORTEST: Micros = Micros::from_millis(1);
const LONGEST: Micros = Micros::DAY;

/// What is counted as envoyproxy/ratelimit counts it, and where it goes.
#[derive(Debug, Clone)]
pub struct StatsSettings {
    /// From which share of a limit its use is near it.
    pub near_limit_ratio: NearLimitRatio,
    /// How many names values of requests may make.
    pub names: usize,
    /// The servers of statsd that it is sent to.
    pub statsd: Vec<StatsdSettings>,
    /// Where Prometheus reads it, if it does.
    pub prometheus: Option<PrometheusSettings>,
}

/// A server of statsd.
#[derive(Debug, Clone)]
pub struct StatsdSettings {
    /// Its host and its port.
    pub address: String,
    /// Whether it is sent to over UDP, and not over TCP.
    pub is_udp: bool,
    /// How often.
    pub interval: Micros,
    /// How lines are written.
    pub dialect: StatsdDialect,
    /// The tags of each line.
    pub tags: Vec<(String, String)>,
}

/// What Prometheus reads.
#[derive(Debug, Clone)]
pub struct PrometheusSettings {
    /// Where it is served.
    pub address: SocketAddr,
    /// The path of the page.
    pub path: String,
    /// The file that names the series, if it is not the built-in one.
    pub mapping: Option<PathBuf>,
    /// What the built-in one shows times in.
    pub time_unit: TimeUnit,
    /// The labels of each series.
    pub tags: Vec<(String, String)>,
}

pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<StatsSettings> {
    let near_limit_ratio = setting(fields, "near_limit_ratio", str::parse, problems);
    let names = number(fields, "stat_names", problems);
    let statsd = statsd(fields, problems);
    let prometheus = prometheus(fields, problems);
    Some(StatsSettings {
        near_limit_ratio: near_limit_ratio?,
        names: names?,
        statsd,
        prometheus,
    })
}

/// `off`, an address, a map, or a list of these.
fn statsd(fields: &Fields<'_>, problems: &mut Problems) -> Vec<StatsdSettings> {
    let Some((spot, node)) = fields.take("statsd") else {
        return Vec::new();
    };
    let items = match &node.value {
        Value::Map(_) => vec![(spot, node)],
        _ => spot.items(node, problems),
    };
    let mut servers = Vec::new();
    for (spot, node) in items {
        if node.text() == Some("off") {
            continue;
        }
        let map = in_map(node, "address");
        servers.extend(server(&map, spot, problems));
    }
    servers
}

fn server(node: &Node, spot: Spot, problems: &mut Problems) -> Option<StatsdSettings> {
    let fields = Fields::new(node, spot, &STATSD, problems)?;
    let address = setting(&fields, "address", host_and_port, problems);
    let dialects = [("statsd", false), ("dogstatsd", true)];
    let is_dog = word(&fields, "dialect", &dialects, problems)?;
    let protocol = fields.take("protocol");
    let protocol = protocol.and_then(|(spot, node)| {
        let protocol = spot.one_of(node, &[("tcp", false), ("udp", true)], problems)?;
        if is_dog && !protocol {
            let message = "DogStatsD is sent over UDP; leave this out";
            problems.error(&node.place, &spot, message);
        }
        Some(protocol)
    });
    let interval = setting(&fields, "interval", interval, problems);
    let tags = tags(&fields, problems);
    let mogrifiers = mogrifiers(&fields, problems);
    if let (false, Some((spot, node))) = (is_dog, fields.take("mogrifiers")) {
        let message = "names are rewritten for DogStatsD alone; add `dialect: dogstatsd`";
        problems.error(&node.place, &spot, message);
    }
    fields.done(problems);
    Some(StatsdSettings {
        address: address?,
        is_udp: protocol.unwrap_or(is_dog),
        interval: interval?,
        dialect: if is_dog {
            StatsdDialect::DogStatsd(mogrifiers)
        } else {
            StatsdDialect::Statsd
        },
        tags,
    })
}

/// `off`, an address, or a map.
fn prometheus(fields: &Fields<'_>, problems: &mut Problems) -> Option<PrometheusSettings> {
    let (spot, node) = fields.take("prometheus")?;
    if node.text() == Some("off") {
        return None;
    }
    let map = in_map(node, "address");
    let fields = Fields::new(&map, spot, &PROMETHEUS, problems)?;
    let address = setting(&fields, "address", listen_address, problems);
    let path = setting(&fields, "path", path, problems);
    let mapping = fields.text("mapping", problems).map(PathBuf::from);
    let units = [
        ("seconds", TimeUnit::Seconds),
        ("milliseconds", TimeUnit::Milliseconds),
    ];
    let time_unit = word(&fields, "response_time", &units, problems);
    let tags = tags(&fields, problems);
    fields.done(problems);
    Some(PrometheusSettings {
        address: address?,
        path: path?,
        mapping,
        time_unit: time_unit?,
        tags,
    })
}

/// A map with one value under this key, if the node is that value.
fn in_map(node: &Node, key: &str) -> Node {
    if !matches!(node.value, Value::Scalar(_)) {
        return node.clone();
    }
    let entry = Entry {
        key: key.to_owned(),
        key_place: node.place.clone(),
        value: node.clone(),
    };
    Node {
        value: Value::Map(vec![entry]),
        place: node.place.clone(),
    }
}

fn tags(fields: &Fields<'_>, problems: &mut Problems) -> Vec<(String, String)> {
    let Some((spot, node)) = fields.take("tags") else {
        return Vec::new();
    };
    let mut tags = Vec::new();
    for Entry { key, value, .. } in spot.entries(node, problems) {
        match value.text() {
            Some(text) => tags.push((key.clone(), text.to_owned())),
            None => problems.error(&value.place, &spot.field(key), "this must be text"),
        }
    }
    tags
}

fn mogrifiers(fields: &Fields<'_>, problems: &mut Problems) -> Vec<Mogrifier> {
    let Some((spot, node)) = fields.take("mogrifiers") else {
        return Vec::new();
    };
    let items = match &node.value {
        Value::Map(_) => vec![(spot, node)],
        _ => spot.items(node, problems),
    };
    let mut mogrifiers = Vec::new();
    for (spot, node) in items {
        let Some(fields) = Fields::new(node, spot.clone(), &MOGRIFIER, problems) else {
            continue;
        };
        let pattern = fields.text("pattern", problems).unwrap_or_default();
        let name = fields.text("name", problems).unwrap_or_default();
        let tags = tags(&fields, problems);
        fields.done(problems);
        match Mogrifier::new(pattern, name, &tags) {
            Ok(mogrifier) => mogrifiers.push(mogrifier),
            Err(problem) => problems.error(&node.place, &spot, problem),
        }
    }
    mogrifiers
}

fn host_and_port(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) => Ok(text.to_owned()),
        _ => Err(format!(
            "`{text}` is not the address of a server; write a host and a port, for example `localhost:8125`, or `off`"
        )),
    }
}

fn interval(text: &str) -> Result<Micros, String> {
    let expected = "expected `1ms` to `24h`";
    match span(text) {
        Ok(interval) if (SHORTEST..=LONGEST).contains(&interval) => Ok(interval),
        Ok(_) => Err(format!("`{text}` is out of range; {expected}")),
        Err(problem) => Err(format!("{problem}; {expected}")),
    }
}

fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    Err(format!(
        "`{text}` is not a path; write for example `/metrics`"
    ))
}
