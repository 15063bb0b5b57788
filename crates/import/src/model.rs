//! Zones, servers, locations and the limits that are in force in them: what is read from nginx, and from ingresses.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::report::ConfigLine;

/// A configuration, with inheritance resolved.
#[derive(Debug, Default)]
pub(crate) struct LimitModel {
    pub(crate) zones: Vec<LimitZone>,
    pub(crate) servers: Vec<VirtualServer>,
    /// Variables that `map` and `geo` define.
    pub(crate) lookups: BTreeMap<String, LookupTable>,
    /// The proxies that say who a client is, and the header in which they do.
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) forwarded_header: Option<String>,
}

/// A zone: what is counted, by which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitZone {
    /// The name, from which the ids of rules follow.
    pub(crate) name: String,
    /// The key, with variables.
    pub(crate) key: String,
    /// Requests per second or minute; none for a zone of connections.
    pub(crate) rate: Option<ZoneRate>,
    /// The zone as written, for comments.
    pub(crate) text: String,
    pub(crate) at: ConfigLine,
}

/// A rate as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ZoneRate {
    pub(crate) count: u64,
    pub(crate) is_per_minute: bool,
}

/// A limit that is in force at some level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppliedLimit {
    /// The index of its zone.
    pub(crate) zone: usize,
    pub(crate) counting: ZoneCounting,
    /// The status of requests that are denied.
    pub(crate) status: u16,
    /// Whether it only counts.
    pub(crate) is_dry_run: bool,
    /// The limit as written, for comments.
    pub(crate) text: String,
    pub(crate) at: ConfigLine,
}

impl AppliedLimit {
    /// Whether two limits decide alike, wherever they are written.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.zone == other.zone
            && self.counting == other.counting
            && self.status == other.status
            && self.is_dry_run == other.is_dry_run
    }
}

/// What a limit grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneCounting {
    /// The rate of the zone, and a burst on top of the first request.
    Requests { burst: u64, delay: ZoneDelay },
    /// Requests at the same time.
    Connections(u64),
}

/// Which requests of a burst wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZoneDelay {
    /// None.
    None,
    /// All but the first.
    All,
    /// Those after so many.
    After(u64),
}

/// A `server`, or a host of ingresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct VirtualServer {
    pub(crate) names: Vec<String>,
    /// The ports on which it listens.
    pub(crate) ports: Vec<String>,
    /// Whether it is marked as the default.
    pub(crate) is_default: bool,
    /// Requests that are in no location.
    pub(crate) rest: LimitLevel,
    pub(crate) locations: Vec<Location>,
    pub(crate) at: ConfigLine,
}

/// A location, and what is in force in it.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) test: LocationTest,
    /// The paths of the locations around it.
    pub(crate) inside: Vec<String>,
    pub(crate) level: LimitLevel,
    pub(crate) at: ConfigLine,
}

/// Which paths are in a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocationTest {
    /// This path.
    Exact(String),
    /// Paths that begin so; if it is final, regular expressions are not tried.
    Prefix { path: String, is_final: bool },
    /// This path and those below it.
    Segments(String),
    /// Paths that match, in a location with this prefix.
    Regex { pattern: String, within: String },
}

/// The limits of a level, and the variables that are set before they are decided.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitLevel {
    pub(crate) limits: Vec<AppliedLimit>,
    pub(crate) assignments: Vec<Assignment>,
}

/// `set $name value;`, in an `if` or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The words of the condition.
    pub(crate) condition: Option<Vec<String>>,
    pub(crate) at: ConfigLine,
}

/// `map` or `geo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookupTable {
    /// The text that is looked up, with variables.
    pub(crate) source: String,
    pub(crate) default: String,
    pub(crate) entries: Vec<LookupEntry>,
    /// Why it cannot be used.
    pub(crate) unsupported: Option<String>,
    pub(crate) at: ConfigLine,
}

/// A line of `map` or `geo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookupEntry {
    pub(crate) test: LookupTest,
    pub(crate) value: String,
}

/// What a line of `map` or `geo` looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LookupTest {
    Text(String),
    Regex(String),
    Network(IpNet),
}
