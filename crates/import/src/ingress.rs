//! Reads ingresses of ingress-nginx: their annotations about limits, as zones and locations.
//!
//! The controller writes a zone for each limit of an ingress and uses it in all its locations, so all paths of an ingress
//! share counters. A host with one regular expression among its paths has only regular expressions.

mod manifest;

use tidegate::document::{Node, Place, Problems, Source, Value};

use crate::model::{
    AppliedLimit, LimitLevel, LimitModel, LimitZone, Location, LocationTest, LookupEntry,
    LookupTable, LookupTest, VirtualServer, ZoneCounting, ZoneDelay, ZoneRate,
};
use crate::report::{ConfigLine, ImportReport};
use crate::{ImportFile, ImportSettings};
use manifest::{IngressManifest, IngressPath};

/// The most requests and the most burst that a limit of a rule may have.
const MOST: u64 = 999_999_999;
/// The multiplier of the burst, if none is set.
const DEFAULT_MULTIPLIER: u64 = 5;
/// How many paths are used.
const MAX_PATHS: usize = 5_000;

pub(crate) fn read(
    files: &[ImportFile],
    settings: &ImportSettings,
    report: &mut ImportReport,
) -> Result<LimitModel, String> {
    let mut reader = IngressReader {
        replicas: settings.replicas.unwrap_or(1).max(1),
        report,
        model: LimitModel::default(),
        statuses: (503, 503),
        paths: 0,
    };
    let mut manifests = Vec::new();
    for file in files {
        let number = reader.report.add_file(&file.name);
        let mut problems = Problems::new();
        let source = Source::new(&file.name, &file.text);
        let Some(documents) = source.read_all(&mut problems) else {
            return Err(problems.render(&source).trim_end().to_owned());
        };
        for document in &documents {
            reader.document(document, number, &mut manifests);
        }
    }
    if manifests.is_empty() {
        return Err("there is no manifest of kind `Ingress` in it".to_owned());
    }
    let regexes: Vec<String> = manifests
        .iter()
        .filter(|m| m.is_regex)
        .flat_map(IngressManifest::hosts)
        .collect();
    for manifest in &manifests {
        reader.ingress(manifest, &regexes);
    }
    if settings.replicas.is_none() && !reader.model.zones.is_empty() {
        reader.report.general_difference("each pod of the controller counts by itself, so with R pods the old limit was R times this one; `--replicas R` multiplies the limits by R");
    }
    // Requests for other hosts are in no ingress.
    if !reader.model.servers.iter().any(|server| server.is_default) {
        reader.model.servers.push(VirtualServer {
            is_default: true,
            ..VirtualServer::default()
        });
    }
    // Longer paths are tried first, as the controller sorts them.
    for server in &mut reader.model.servers {
        server.locations.sort_by_key(|location| {
            let length = match &location.test {
                LocationTest::Exact(path)
                | LocationTest::Segments(path)
                | LocationTest::Prefix { path, .. }
                | LocationTest::Regex { pattern: path, .. } => path.len(),
            };
            std::cmp::Reverse(length)
        });
    }
    Ok(reader.model)
}

struct IngressReader<'r> {
    replicas: u64,
    report: &'r mut ImportReport,
    model: LimitModel,
    /// The statuses of denied requests, by the controller's settings: of requests, of connections.
    statuses: (u16, u16),
    paths: usize,
}

impl IngressReader<'_> {
    /// Takes a document: an ingress, a list, or the settings of the controller.
    fn document(&mut self, node: &Node, file: usize, manifests: &mut Vec<IngressManifest>) {
        match node.get("kind").and_then(Node::text) {
            Some("Ingress") => manifests.push(IngressManifest::read(node, file)),
            Some("ConfigMap") => {
                let data = node.get("data");
                let status = |key: &str| {
                    let text = data.and_then(|data| data.get(key)).and_then(Node::text);
                    text.and_then(|text| text.parse().ok())
                };
                if let Some(status) = status("limit-req-status-code") {
                    self.statuses.0 = status;
                }
                if let Some(status) = status("limit-conn-status-code") {
                    self.statuses.1 = status;
                }
            }
            Some(_) | None => {
                if let Some(items) = node.get("items")
                    && let Value::List(items) = &items.value
                {
                    for item in items {
                        // A list in a list is no manifest.
                        if item.get("items").is_none() {
                            self.document(item, file, manifests);
                        }
                    }
                }
            }
        }
    }

    fn ingress(&mut self, manifest: &IngressManifest, regexes: &[String]) {
        let limits = self.limits(manifest);
        if manifest.is_canary {
            if let Some(limit) = limits.first() {
                self.report.left_out(
                    limit.at,
                    "limits of a canary: the controller uses those of the main ingress",
                );
            }
            return;
        }
        for path in &manifest.paths {
            self.paths += 1;
            if self.paths > MAX_PATHS {
                self.report.left_out(
                    path.at,
                    format!("more than {MAX_PATHS} paths; this one and those after it"),
                );
                return;
            }
            let is_regex = regexes.contains(&path.host);
            let location = Location {
                test: location_test(path, is_regex),
                inside: Vec::new(),
                level: LimitLevel {
                    limits: limits.clone(),
                    assignments: Vec::new(),
                },
                at: path.at,
            };
            self.server(path).locations.push(location);
        }
    }

    /// The server of a host.
    fn server(&mut self, path: &IngressPath) -> &mut VirtualServer {
        let is_same =
            |server: &VirtualServer| server.names.first().map_or("", String::as_str) == path.host;
        let servers = &mut self.model.servers;
        let known = servers.iter().position(is_same);
        let index = known.unwrap_or_else(|| {
            let host = Some(path.host.clone()).filter(|host| !host.is_empty());
            servers.push(VirtualServer {
                names: host.into_iter().collect(),
                is_default: path.host.is_empty(),
                at: path.at,
                ..VirtualServer::default()
            });
            servers.len() - 1
        });
        &mut servers[index]
    }

    /// The limits in the annotations of an ingress.
    fn limits(&mut self, manifest: &IngressManifest) -> Vec<AppliedLimit> {
        let mut multiplier = DEFAULT_MULTIPLIER;
        if let Some((at, value)) = manifest.annotation("limit-burst-multiplier") {
            multiplier = self
                .number(at, "limit-burst-multiplier", value)
                .unwrap_or(DEFAULT_MULTIPLIER);
        }
        let key = self.key(manifest);
        let statuses = manifest.statuses(self.statuses);
        let mut limits = Vec::new();
        let kinds = [
            ("limit-rps", Some(false)),
            ("limit-rpm", Some(true)),
            ("limit-connections", None),
        ];
        for (name, is_per_minute) in kinds {
            let Some((at, value)) = manifest.annotation(name) else {
                continue;
            };
            let Some(number) = self.number(at, name, value) else {
                continue;
            };
            let burst = number.saturating_mul(multiplier);
            // All pods together admit the first request and the burst of each.
            let burst = burst.saturating_add(1).saturating_mul(self.replicas) - 1;
            let count = number.saturating_mul(self.replicas);
            if count > MOST || burst > MOST {
                self.report.left_out(
                    at,
                    format!("`{name}: {value}`, which is more than a rule can count"),
                );
                continue;
            }
            let kind = name.strip_prefix("limit-").unwrap_or(name);
            self.model.zones.push(LimitZone {
                name: format!("{}-{kind}", manifest.name),
                key: key.clone(),
                rate: is_per_minute.map(|is_per_minute| ZoneRate {
                    count,
                    is_per_minute,
                }),
                text: String::new(),
                at,
            });
            limits.push(AppliedLimit {
                zone: self.model.zones.len() - 1,
                counting: match is_per_minute {
                    Some(_) => ZoneCounting::Requests {
                        burst,
                        delay: ZoneDelay::None,
                    },
                    None => ZoneCounting::Connections(count),
                },
                status: if is_per_minute.is_some() {
                    statuses.0
                } else {
                    statuses.1
                },
                is_dry_run: false,
                text: format!("{name}: {value}"),
                at,
            });
        }
        self.others(manifest);
        limits
    }

    /// Reports what has no rule.
    fn others(&mut self, manifest: &IngressManifest) {
        for name in ["limit-rate", "limit-rate-after"] {
            if let Some((at, value)) = manifest.annotation(name)
                && value != "0"
            {
                self.report.left_out(
                    at,
                    format!("`{name}` limits bandwidth, rules limit requests"),
                );
            }
        }
        for (at, name) in manifest.annotations_with("global-rate-limit") {
            self.report.left_out(
                at,
                format!(
                    "`{name}`: write a rule for it, whose counters all servers share over Redis"
                ),
            );
        }
        for (at, directive) in &manifest.snippets {
            self.report
                .left_out(*at, format!("`{directive}` in a snippet"));
        }
    }

    fn number(&mut self, at: ConfigLine, name: &str, value: &str) -> Option<u64> {
        match value.parse() {
            Ok(0) => None,
            Ok(number) if number <= MOST => Some(number),
            _ => {
                let message = format!("`{name}: {value}` is not a number from 1 to {MOST}");
                self.report.left_out(at, message);
                None
            }
        }
    }

    /// The key of the zones of an ingress: the address, but none for networks that are exempt.
    fn key(&mut self, manifest: &IngressManifest) -> String {
        let address = "$binary_remote_addr".to_owned();
        let listed = manifest.annotation("limit-allowlist");
        let Some((at, list)) = listed.or_else(|| manifest.annotation("limit-whitelist")) else {
            return address;
        };
        let mut entries = Vec::new();
        for text in list
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
        {
            match crate::nginx::network(text) {
                Some(network) => entries.push(LookupEntry {
                    test: LookupTest::Network(network),
                    value: String::new(),
                }),
                None => self
                    .report
                    .left_out(at, format!("`{text}` is not a network")),
            }
        }
        if entries.is_empty() {
            return address;
        }
        let name = format!("exempt_{}", self.model.lookups.len());
        let table = LookupTable {
            source: "$remote_addr".to_owned(),
            default: address,
            entries,
            unsupported: None,
            at,
        };
        self.model.lookups.insert(name.clone(), table);
        format!("${name}")
    }
}

fn location_test(path: &IngressPath, is_regex: bool) -> LocationTest {
    match path.kind.as_str() {
        "Exact" => LocationTest::Exact(path.path.clone()),
        _ if is_regex => LocationTest::Regex {
            pattern: format!("(?i)^{}", path.path),
            within: String::new(),
        },
        "Prefix" => LocationTest::Segments(path.path.clone()),
        _ => LocationTest::Prefix {
            path: path.path.clone(),
            is_final: false,
        },
    }
}

/// The line of a part of a manifest.
fn line_of(place: &Place, file: usize) -> ConfigLine {
    let line = match place {
        Place::Text { line, .. } => *line,
        Place::Setting(_) | Place::Nowhere => 0,
    };
    ConfigLine { file, line }
}
