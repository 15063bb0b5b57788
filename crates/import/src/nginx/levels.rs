//! Reads `http`, `server` and `location`: which limits are in force where.
//!
//! A level inherits the limits of the level around it if it has none of the same kind itself. Statuses and dry runs are
//! inherited one by one.

use super::syntax::Directive;
use crate::model::{
    AppliedLimit, Assignment, LimitLevel, LimitModel, Location, LocationTest, VirtualServer,
    ZoneCounting, ZoneDelay,
};
use crate::report::{ConfigLine, ImportReport};

/// How many locations and servers are used.
const MAX_LOCATIONS: usize = 5_000;

/// The status that nginx answers with if none is set.
const DEFAULT_STATUS: u16 = 503;

pub(super) fn read(http: &[Directive], model: &mut LimitModel, report: &mut ImportReport) {
    let mut reader = LevelReader {
        model,
        report,
        locations: 0,
    };
    let around = reader.level(http, &InheritedLimits::default());
    let servers: Vec<&Directive> = http.iter().filter(|d| d.name == "server").collect();
    for server in &servers {
        reader.server(server, &around);
    }
    if servers.is_empty() {
        // A part of a `server`, or limits that are in force for all.
        let mut server = VirtualServer {
            rest: around.level(),
            ..VirtualServer::default()
        };
        for location in http.iter().filter(|d| d.name == "location") {
            reader.location(location, &around, &[], &mut server);
        }
        reader.model.servers.push(server);
    }
}

/// What a level has, for the levels in it.
#[derive(Debug, Clone, Default)]
struct InheritedLimits {
    requests: Vec<AppliedLimit>,
    connections: Vec<AppliedLimit>,
    request_status: Option<u16>,
    connection_status: Option<u16>,
    is_request_dry_run: bool,
    is_connection_dry_run: bool,
    assignments: Vec<Assignment>,
    /// Whether requests are answered before limits are looked at.
    is_answered: bool,
}

impl InheritedLimits {
    /// What is in force.
    fn level(&self) -> LimitLevel {
        if self.is_answered {
            return LimitLevel::default();
        }
        let with = |limit: &AppliedLimit, status: Option<u16>, is_dry_run: bool| AppliedLimit {
            status: status.unwrap_or(DEFAULT_STATUS),
            is_dry_run,
            ..limit.clone()
        };
        let requests = self.requests.iter();
        let requests =
            requests.map(|limit| with(limit, self.request_status, self.is_request_dry_run));
        let connections = self.connections.iter();
        let connections = connections
            .map(|limit| with(limit, self.connection_status, self.is_connection_dry_run));
        LimitLevel {
            limits: requests.chain(connections).collect(),
            assignments: self.assignments.clone(),
        }
    }

    fn has_limits(&self) -> bool {
        !self.requests.is_empty() || !self.connections.is_empty()
    }
}

struct LevelReader<'r> {
    model: &'r mut LimitModel,
    report: &'r mut ImportReport,
    locations: usize,
}

impl LevelReader<'_> {
    /// What the directives of a block add to what is around it.
    fn level(&mut self, block: &[Directive], around: &InheritedLimits) -> InheritedLimits {
        let mut level = around.clone();
        let (mut requests, mut connections) = (Vec::new(), Vec::new());
        for directive in block {
            let word = directive.word(0);
            match directive.name.as_str() {
                "limit_req" => requests.extend(self.limit(directive, request_limit)),
                "limit_conn" => connections.extend(self.limit(directive, connection_limit)),
                "limit_req_status" => level.request_status = word.parse().ok(),
                "limit_conn_status" => level.connection_status = word.parse().ok(),
                "limit_req_dry_run" => level.is_request_dry_run = word == "on",
                "limit_conn_dry_run" => level.is_connection_dry_run = word == "on",
                "limit_rate" | "limit_rate_after" if word != "0" => self.report.left_out(
                    directive.at,
                    format!(
                        "`{}` limits bandwidth, rules limit requests",
                        directive.name
                    ),
                ),
                "return" | "internal" => level.is_answered = true,
                "set" => level.assignments.push(assignment(directive, None)),
                "if" => self.condition(directive, &mut level),
                "set_real_ip_from" => {
                    let proxies = &mut self.model.trusted_proxies;
                    if !proxies.iter().any(|known| known == word) {
                        proxies.push(word.to_owned());
                    }
                }
                "real_ip_header" => {
                    self.model.forwarded_header = Some(word.to_ascii_lowercase());
                }
                name if name.ends_with("_by_lua_block") && word.contains("resty.limit") => {
                    self.report
                        .left_out(directive.at, "limits in Lua (`resty.limit`)");
                }
                _ => {}
            }
        }
        if !requests.is_empty() {
            level.requests = requests;
        }
        if !connections.is_empty() {
            level.connections = connections;
        }
        level
    }

    /// `if`: variables that it sets, and requests that it answers.
    fn condition(&mut self, directive: &Directive, level: &mut InheritedLimits) {
        for inner in directive.children() {
            match inner.name.as_str() {
                "set" => {
                    let condition = Some(directive.words.clone());
                    level.assignments.push(assignment(inner, condition));
                }
                "return" => self.report.note(
                    directive.at,
                    "requests that this `if` answers are not counted by nginx; a rule counts them where Tidegate is in front of nginx",
                ),
                _ => {}
            }
        }
    }

    fn limit(
        &mut self,
        directive: &Directive,
        read: impl FnOnce(&Directive) -> Result<(String, ZoneCounting), String>,
    ) -> Option<AppliedLimit> {
        let limit = read(directive).and_then(|(name, counting)| {
            let is_rate = matches!(counting, ZoneCounting::Requests { .. });
            let mut zones = self.model.zones.iter();
            let zone = zones.position(|zone| zone.name == name && zone.rate.is_some() == is_rate);
            let zone = zone.ok_or_else(|| format!("the zone `{name}` is not defined"))?;
            Ok(AppliedLimit {
                zone,
                counting,
                status: DEFAULT_STATUS,
                is_dry_run: false,
                text: format!("{} {}", directive.name, directive.words.join(" ")),
                at: directive.at,
            })
        });
        match limit {
            Ok(limit) => Some(limit),
            Err(reason) => {
                self.report.left_out(directive.at, reason);
                None
            }
        }
    }

    fn server(&mut self, directive: &Directive, around: &InheritedLimits) {
        let block = directive.children();
        let around = self.level(block, around);
        if around.is_answered || !self.counts(directive.at) {
            return;
        }
        let mut server = VirtualServer {
            rest: around.level(),
            at: directive.at,
            ..VirtualServer::default()
        };
        for directive in block {
            match directive.name.as_str() {
                "server_name" => server.names.extend(directive.words.iter().cloned()),
                "listen" => {
                    server.ports.push(port(directive.word(0)));
                    let mut options = directive.words.iter();
                    server.is_default |= options.any(|o| o == "default_server" || o == "default");
                }
                "location" => self.location(directive, &around, &[], &mut server),
                _ => {}
            }
        }
        if server.ports.is_empty() {
            server.ports.push("80".to_owned());
        }
        self.model.servers.push(server);
    }

    /// Whether another server or location is within the bound.
    fn counts(&mut self, at: ConfigLine) -> bool {
        self.locations += 1;
        if self.locations == MAX_LOCATIONS + 1 {
            let message =
                format!("more than {MAX_LOCATIONS} locations; this one and those after it");
            self.report.left_out(at, message);
        }
        self.locations <= MAX_LOCATIONS
    }

    /// Adds a location, and those in it. `inside` has the paths of the locations around it.
    fn location(
        &mut self,
        directive: &Directive,
        around: &InheritedLimits,
        inside: &[String],
        server: &mut VirtualServer,
    ) {
        if !self.counts(directive.at) {
            return;
        }
        let block = directive.children();
        let level = self.level(block, around);
        let nested = block.iter().filter(|d| d.name == "location");
        let Some(test) = location_test(&directive.words, inside.last().map_or("", String::as_str))
        else {
            let name = directive.words.join(" ");
            let has_own = block.iter().any(|d| d.name.starts_with("limit_"));
            if has_own && level.has_limits() {
                let message =
                    format!("limits in `location {name}`, which no path reaches by itself");
                self.report.left_out(directive.at, message);
            }
            return;
        };
        let path = match &test {
            LocationTest::Prefix { path, .. } => Some(path.clone()),
            LocationTest::Exact(_) | LocationTest::Segments(_) | LocationTest::Regex { .. } => None,
        };
        // Those inside are tried first.
        for inner in nested {
            match &path {
                Some(path) => {
                    let inside = [inside, std::slice::from_ref(path)].concat();
                    self.location(inner, &level, &inside, server);
                }
                None if inner
                    .children()
                    .iter()
                    .any(|d| d.name.starts_with("limit_")) =>
                {
                    self.report.left_out(
                        inner.at,
                        "limits of a location in a location with a regular expression or an exact path",
                    );
                }
                None => {}
            }
        }
        server.locations.push(Location {
            test,
            inside: inside.to_vec(),
            level: level.level(),
            at: directive.at,
        });
    }
}

/// Which paths a location is about; none for a named location, and for what is no location.
fn location_test(words: &[String], within: &str) -> Option<LocationTest> {
    let regex = |pattern: &str, ignores_case: bool| {
        let flags = if ignores_case { "(?i)" } else { "" };
        Some(LocationTest::Regex {
            pattern: format!("{flags}{pattern}"),
            within: within.to_owned(),
        })
    };
    let prefix = |path: &str, is_final: bool| {
        path.starts_with('/').then(|| LocationTest::Prefix {
            path: path.to_owned(),
            is_final,
        })
    };
    match words {
        [sign, path] => match sign.as_str() {
            "=" => Some(LocationTest::Exact(path.clone())),
            "^~" => prefix(path, true),
            "~" => regex(path, false),
            "~*" => regex(path, true),
            _ => None,
        },
        [word] => {
            if let Some(path) = word.strip_prefix('=') {
                Some(LocationTest::Exact(path.to_owned()))
            } else if let Some(path) = word.strip_prefix("^~") {
                prefix(path, true)
            } else if let Some(pattern) = word.strip_prefix("~*") {
                regex(pattern, true)
            } else if let Some(pattern) = word.strip_prefix('~') {
                regex(pattern, false)
            } else {
                prefix(word, false)
            }
        }
        _ => None,
    }
}

fn assignment(directive: &Directive, condition: Option<Vec<String>>) -> Assignment {
    let name = directive.word(0);
    Assignment {
        name: name.strip_prefix('$').unwrap_or(name).to_owned(),
        value: directive.word(1).to_owned(),
        condition,
        at: directive.at,
    }
}

/// The port of an address to listen on.
fn port(address: &str) -> String {
    let last = address.rsplit(':').next().unwrap_or(address);
    let is_port = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    if is_port { last } else { "80" }.to_owned()
}

/// The largest burst that a limit of a rule may have, less the first request.
const MOST_BURST: u64 = 999_999_999;

fn request_limit(directive: &Directive) -> Result<(String, ZoneCounting), String> {
    let mut zone = None;
    let (mut burst, mut delay) = (0, ZoneDelay::All);
    for word in &directive.words {
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| *number <= MOST_BURST);
            number.ok_or_else(|| format!("`{word}` is not a number from 0 to {MOST_BURST}"))
        };
        if let Some(name) = word.strip_prefix("zone=") {
            zone = Some(name.to_owned());
        } else if let Some(text) = word.strip_prefix("burst=") {
            burst = number(text)?;
        } else if let Some(text) = word.strip_prefix("delay=") {
            delay = ZoneDelay::After(number(text)?);
        } else if word == "nodelay" {
            delay = ZoneDelay::None;
        } else {
            return Err(format!("`limit_req` has no parameter `{word}`"));
        }
    }
    let zone = zone.ok_or("`limit_req` has no `zone=NAME`")?;
    let delay = match delay {
        // None of the burst waits.
        ZoneDelay::After(after) if after >= burst => ZoneDelay::None,
        ZoneDelay::After(0) => ZoneDelay::All,
        ZoneDelay::All if burst == 0 => ZoneDelay::None,
        other => other,
    };
    Ok((zone, ZoneCounting::Requests { burst, delay }))
}

fn connection_limit(directive: &Directive) -> Result<(String, ZoneCounting), String> {
    match directive.words.as_slice() {
        [zone, number] => match number.parse() {
            Ok(number @ 1..=65_535) => Ok((zone.clone(), ZoneCounting::Connections(number))),
            _ => Err(format!("`{number}` is not a number from 1 to 65535")),
        },
        _ => Err("`limit_conn` is written as `limit_conn ZONE NUMBER`".to_owned()),
    }
}
