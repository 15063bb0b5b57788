//! From zones, servers and locations to rules: one for each limit, key and region.

use std::collections::BTreeMap;

use crate::hosts::{self, HostRegion};
use crate::merge::merged;
use crate::model::{
    AppliedLimit, Assignment, LimitLevel, LimitModel, LocationTest, VirtualServer, ZoneCounting,
};
use crate::region::{self, PathRegion};
use crate::report::{ConfigLine, ImportFindingKind, ImportReport};
use crate::request_test::{RequestFact, RequestTest, RuleScope};
use crate::resolve::{KeyCase, KeyPiece, KeyResolver};
use crate::rule_file::{WrittenLimit, WrittenRules, pattern_problem};
use crate::rule_key::RuleKey;
use crate::{ImportSettings, ImportedRules, NothingImported};

/// The most rules of a file.
const MAX_RULES: usize = 2_000;

pub(crate) fn rules(
    mut model: LimitModel,
    settings: &ImportSettings,
    mut report: ImportReport,
) -> Result<ImportedRules, NothingImported> {
    drop_unusable(&mut model, &mut report);
    let mut converter = Converter {
        model: &model,
        report,
        file: WrittenRules::new(&model),
        groups: Vec::new(),
        resolved: Vec::new(),
    };
    let in_force = converter.groups();
    for group in 0..converter.groups.len() {
        converter.group(group, &in_force);
    }
    converter.zones();
    converter.general(settings);
    let Converter {
        mut report, file, ..
    } = converter;
    if file.is_empty() {
        let has_limits = report.has_left_out();
        let reason = if has_limits {
            "no rule could be written"
        } else {
            "there is no `limit_req` and no `limit_conn` in it"
        };
        return Err(report.refused(reason.to_owned()));
    }
    let text = file.text(&mut report);
    Ok(ImportedRules {
        text,
        findings: report.finish(),
    })
}

/// Removes locations and names of servers whose regular expressions a condition cannot have.
fn drop_unusable(model: &mut LimitModel, report: &mut ImportReport) {
    let mut known: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut problem = |pattern: &str| {
        let found = known.entry(pattern.to_owned());
        found.or_insert_with(|| pattern_problem(pattern)).clone()
    };
    for server in &mut model.servers {
        server.locations.retain(|location| {
            let LocationTest::Regex { pattern, .. } = &location.test else {
                return true;
            };
            let Some(reason) = problem(pattern) else {
                return true;
            };
            let message =
                format!("this location, with its limits and its exceptions from others: {reason}");
            report.left_out(location.at, message);
            false
        });
        let at = server.at;
        server.names.retain(|name| {
            let Some(reason) = name.strip_prefix('~').and_then(&mut problem) else {
                return true;
            };
            report.left_out(at, format!("the name `{name}` of this server: {reason}"));
            false
        });
    }
}

/// A limit with its key, wherever it is in force.
struct LimitGroup {
    limit: AppliedLimit,
    cases: Vec<KeyCase>,
    lines: Vec<(ConfigLine, String)>,
}

/// The groups that are in force in each server: for its locations, and last for requests in none.
type InForceGroups = Vec<Vec<Vec<usize>>>;

/// A key that was followed, for a zone and the variables of a level.
type ResolvedKey = (usize, Vec<Assignment>, Option<Vec<KeyCase>>);

struct Converter<'m> {
    model: &'m LimitModel,
    report: ImportReport,
    file: WrittenRules,
    groups: Vec<LimitGroup>,
    resolved: Vec<ResolvedKey>,
}

impl Converter<'_> {
    /// Finds the groups, and where they are in force.
    fn groups(&mut self) -> InForceGroups {
        let mut in_force = Vec::new();
        for server in &self.model.servers {
            let levels = server.locations.iter().map(|location| &location.level);
            let levels = levels.chain([&server.rest]);
            in_force.push(levels.map(|level| self.groups_of(level)).collect());
        }
        in_force
    }

    fn groups_of(&mut self, level: &LimitLevel) -> Vec<usize> {
        let mut groups = Vec::new();
        for limit in &level.limits {
            let Some(cases) = self.key(limit, &level.assignments) else {
                continue;
            };
            let known = self
                .groups
                .iter()
                .position(|group| group.limit.is_like(limit) && group.cases == cases);
            let index = known.unwrap_or_else(|| {
                self.groups.push(LimitGroup {
                    limit: limit.clone(),
                    cases,
                    lines: Vec::new(),
                });
                self.groups.len() - 1
            });
            if let Some(group) = self.groups.get_mut(index) {
                let line = (limit.at, limit.text.clone());
                if !group.lines.contains(&line) {
                    group.lines.push(line);
                }
            }
            if !groups.contains(&index) {
                groups.push(index);
            }
        }
        groups
    }

    /// The key of a limit. None, and a finding, if it cannot be followed.
    fn key(&mut self, limit: &AppliedLimit, assignments: &[Assignment]) -> Option<Vec<KeyCase>> {
        let mut known = self.resolved.iter();
        let known = known.find(|(zone, variables, _)| {
            *zone == limit.zone && variables.as_slice() == assignments
        });
        if let Some((_, _, cases)) = known {
            if cases.is_none() {
                let message = format!("`{}`, as its zone is left out", limit.text);
                self.report.left_out(limit.at, message);
            }
            return cases.clone();
        }
        let zone = self.model.zones.get(limit.zone)?;
        let mut resolver = KeyResolver {
            model: self.model,
            assignments,
            remarks: Vec::new(),
            identify: Vec::new(),
        };
        let cases = resolver.cases(&zone.key);
        for remark in resolver.remarks {
            match remark.kind {
                ImportFindingKind::Note => self.report.note(zone.at, remark.message),
                ImportFindingKind::Difference => self.report.difference(zone.at, remark.message),
                ImportFindingKind::LeftOut => self.report.left_out(zone.at, remark.message),
            }
        }
        for line in resolver.identify {
            self.file.identify(line);
        }
        let cases = match cases {
            Ok(cases) if cases.is_empty() => {
                let message = format!(
                    "the key of zone `{}` is always empty, so nothing is limited",
                    zone.name
                );
                self.report.note(zone.at, message);
                Some(cases)
            }
            Ok(cases) => Some(cases),
            Err(reason) => {
                let message = format!("the zone `{}`, key `{}`: {reason}", zone.name, zone.key);
                self.report.left_out(zone.at, message);
                let message = format!("`{}`, as its zone is left out", limit.text);
                self.report.left_out(limit.at, message);
                None
            }
        };
        self.resolved
            .push((limit.zone, assignments.to_vec(), cases.clone()));
        cases
    }

    /// Writes the rules of a group.
    fn group(&mut self, index: usize, in_force: &InForceGroups) {
        let servers = &self.model.servers;
        let mut alike: Vec<(PathRegion, Vec<usize>)> = Vec::new();
        for (number, (server, levels)) in servers.iter().zip(in_force).enumerate() {
            let has = |location: Option<usize>| {
                let level = match location {
                    Some(location) => levels.get(location),
                    None => levels.last(),
                };
                level.is_some_and(|groups| groups.contains(&index))
            };
            let Some(mut region) = region::region(server, has) else {
                continue;
            };
            for (at, message) in std::mem::take(&mut region.differences) {
                self.report.difference(at, message);
            }
            match alike.iter_mut().find(|(known, _)| *known == region) {
                Some((_, numbers)) => numbers.push(number),
                None => alike.push((region, vec![number])),
            }
        }
        let alike = merged(alike, servers);
        let Some(group) = self.groups.get(index) else {
            return;
        };
        let (limit, cases) = (group.limit.clone(), group.cases.clone());
        let is_by_host = cases.iter().all(|case| {
            let mut pieces = case.pieces.iter();
            pieces.any(|piece| {
                matches!(
                    piece,
                    KeyPiece::ServerName | KeyPiece::Fact(RequestFact::Host)
                )
            })
        });
        if alike.len() > 1 && !is_by_host {
            let message = "the requests of this limit are in several rules, each with counters of its own; in nginx they share those of the zone";
            self.report.difference(limit.at, message);
        }
        for (region, numbers) in &alike {
            let Some(hosts) = hosts::region(servers, numbers) else {
                let place = servers.get(numbers.first().copied().unwrap_or(0));
                self.report.left_out(
                    place.map_or(limit.at, |server| server.at),
                    format!("`{}` in a server without a name, which only its port distinguishes from others", limit.text),
                );
                continue;
            };
            if let Some(name) = hosts::shared_name(servers, numbers) {
                let message = format!(
                    "servers with the name `{name}` differ in the port alone, which rules do not see: the rule is about all of them"
                );
                self.report.difference(limit.at, message);
            }
            for case in &cases {
                self.rules_of(
                    index,
                    &RuleParts {
                        hosts: &hosts,
                        region,
                        case,
                        servers: numbers,
                    },
                );
            }
        }
    }

    /// Writes the rule of one key and region, or two if a part of the key may be missing.
    fn rules_of(&mut self, group: usize, parts: &RuleParts<'_>) {
        let Some(group) = self.groups.get(group) else {
            return;
        };
        let (at, text) = (group.limit.at, group.limit.text.clone());
        let covered: Vec<&VirtualServer> = parts
            .servers
            .iter()
            .filter_map(|number| self.model.servers.get(*number))
            .collect();
        let mut key = RuleKey::default();
        for piece in &parts.case.pieces {
            match piece {
                KeyPiece::Fact(fact) => key.add(fact.clone()),
                KeyPiece::Constant(text) => key.is_prefixed |= !text.is_empty(),
                KeyPiece::ServerName if covered.len() == 1 => key.is_prefixed = true,
                KeyPiece::ServerName => {
                    if !covered.iter().all(|server| hosts::has_one_name(server)) {
                        self.report.difference(at, "`$server_name` becomes `host`: a server with several names has a counter for each");
                    }
                    key.add(RequestFact::Host);
                }
            }
        }
        for variant in key.variants() {
            if variant.is_partial {
                let names: Vec<&str> = variant.facts.iter().map(RequestFact::name).collect();
                let message = format!(
                    "a request that lacks one of `{}` is not limited; in nginx only one that lacks all",
                    names.join("`, `")
                );
                self.report.difference(at, message);
            }
            match parts.scope(&variant.lacks) {
                Err(reason) => self.report.left_out(at, format!("`{text}`: {reason}")),
                Ok(_) if self.file.len() >= MAX_RULES => {
                    self.report
                        .left_out(at, format!("`{text}`: more than {MAX_RULES} rules"));
                }
                Ok(scope) => {
                    let Some(zone) = self.model.zones.get(group.limit.zone) else {
                        continue;
                    };
                    let written = WrittenLimit {
                        zone,
                        limit: &group.limit,
                        lines: &group.lines,
                        scope,
                        per: variant
                            .facts
                            .iter()
                            .map(|fact| fact.name().to_owned())
                            .collect(),
                        is_shared_if_missing: variant.is_shared,
                    };
                    self.file.add(written, &mut self.report);
                }
            }
        }
    }

    /// What is to be known of zones: those that several limits use, and those that none does.
    fn zones(&mut self) {
        let mut uses: BTreeMap<usize, usize> = BTreeMap::new();
        for group in &self.groups {
            *uses.entry(group.limit.zone).or_default() += 1;
        }
        for (index, zone) in self.model.zones.iter().enumerate() {
            let groups = self.groups.iter().filter(|group| group.limit.zone == index);
            if let Some(count) = uses.get(&index).filter(|count| **count > 1) {
                for group in groups {
                    let message = format!(
                        "the zone `{}` is used by {count} different limits, which share its counters in nginx; each rule has its own",
                        zone.name
                    );
                    self.report.difference(group.limit.at, message);
                }
            } else if !uses.contains_key(&index) {
                let is_left_out = self.resolved.iter().any(|(zone, _, _)| *zone == index);
                if !is_left_out {
                    let message = format!("no limit uses the zone `{}`", zone.name);
                    self.report.note(zone.at, message);
                }
            }
        }
    }

    /// What is to be known of all rules.
    fn general(&mut self, settings: &ImportSettings) {
        let is_rate =
            |group: &LimitGroup| matches!(group.limit.counting, ZoneCounting::Requests { .. });
        if self.file.is_empty() {
            return;
        }
        if self.groups.iter().any(is_rate) {
            self.report.general_note("nginx counts in thousandths of a request and whole milliseconds: up to one request early or late");
            self.report.general_note("a zone that is full answers with an error in nginx; Tidegate evicts the key that is nearest to idle");
        }
        if self.file.has_paths() {
            self.report.general_note("paths are compared after they are normalised; a slash at the end makes no difference");
        }
        if self.file.counts_addresses() && settings.ipv6_prefix < 128 {
            let prefix = settings.ipv6_prefix;
            self.report.general_difference(format!("IPv6 addresses are counted by /{prefix}, in nginx one by one (`ipv6_prefix: 128` in the settings, and `--ipv6-prefix 128` here)"));
        }
        let mut ports = self.model.servers.iter().map(|server| {
            let mut ports = server.ports.clone();
            ports.sort();
            ports
        });
        let first = ports.next();
        if self.file.has_hosts() && ports.any(|ports| Some(&ports) != first.as_ref()) {
            self.report.general_difference("servers listen on different ports, which rules do not see: only the host distinguishes them");
        }
    }
}

/// Where a rule applies, and to which key.
struct RuleParts<'p> {
    hosts: &'p HostRegion,
    region: &'p PathRegion,
    case: &'p KeyCase,
    servers: &'p [usize],
}

impl RuleParts<'_> {
    fn scope(&self, more: &[RequestTest]) -> Result<RuleScope, String> {
        let mut scope = RuleScope::default();
        if !self.hosts.hosts.is_empty() {
            scope.require("host", serde_json::json!(self.hosts.hosts));
        }
        if !self.region.paths.is_empty() {
            scope.require("path", serde_json::json!(self.region.paths));
        }
        let conditions = [&self.hosts.condition, &self.region.condition];
        for condition in conditions.into_iter().flatten() {
            scope.require_condition(condition.clone());
        }
        for item in self.hosts.except.iter().chain(&self.region.except) {
            scope.except(item.clone());
        }
        for test in self.case.tests.iter().chain(more) {
            scope.add(test)?;
        }
        Ok(scope)
    }
}
