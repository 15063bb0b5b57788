//! Rules of a management server: each response has all of them, and is put in force whole or refused whole.
//!
//! `documents.rs` turns resources into the documents of a file, `status.rs` reports. Who asks the server and logs the
//! result is `crate::followed_xds`.

mod documents;
mod status;

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tidegate::document::Problems;
use tidegate::rules::{RuleSet, RuleSettings};
use tidegate::{Gate, Timestamp};
use tidegate_codec::grpc::proto::rate_limit_config::ConfiguredDomain;
use tidegate_xds::{XdsResponse, XdsSettings};

use super::change::{ChangeError, between};
use super::kept::KeptVersions;
use super::last_good::LastGood;
use super::{Origin, RuleBook, missing_in, now, row};
use documents::{decoded, documents, named, sort};

/// How many problems of a response are named.
const NAMED: usize = 5;

/// The rules of a management server.
pub(super) struct XdsRules {
    server: String,
    node: String,
    pub(super) versions: Mutex<KeptVersions>,
    state: Mutex<XdsState>,
}

/// How far the management server is followed.
#[derive(Default)]
struct XdsState {
    /// The domains of the last accepted response.
    published: Vec<ConfiguredDomain>,
    /// Domains that were missing in the first response of a stream, and stay a little longer.
    held: Vec<ConfiguredDomain>,
    is_connected: bool,
    streams: u64,
    accepted: u64,
    unchanged: u64,
    refused: u64,
    /// The version of the last accepted response.
    server_version: Option<String>,
    received: Option<Timestamp>,
    /// Whether the rules in force are the last good ones of an earlier run.
    is_kept: bool,
    /// Why there is no stream.
    failure: Option<String>,
}

/// The result of a response that was accepted.
#[derive(Debug, Default)]
pub(crate) struct TakenResponse {
    /// The new version of the rules, if they differ.
    pub(crate) version: Option<u64>,
    /// The differences.
    pub(crate) changes: Vec<String>,
    /// The removed rules.
    pub(crate) removed: Vec<String>,
    /// Warnings about the rules.
    pub(crate) problems: Problems,
    /// Domains that the response lacks and that stay for now.
    pub(crate) held: Vec<String>,
}

impl RuleBook {
    /// The rules of a management server: the last good ones until it answers, if there are any. Also returns warnings
    /// about them.
    pub(crate) fn of_xds(
        followed: &XdsSettings,
        last_good: Option<LastGood>,
        settings: RuleSettings,
    ) -> (Self, RuleSet, Problems) {
        let server = followed.server.to_string();
        let mut versions = KeptVersions::default();
        let mut state = XdsState::default();
        let mut rules = RuleSet::empty();
        if let Some(last_good) = last_good {
            match read(&last_good.domains, &settings) {
                Ok(read) => {
                    let changes = between(&rules, &read);
                    let mut row = row(1, by(&server), changes);
                    row.at = last_good.received();
                    versions.push(row, &read.written());
                    rules = read;
                    state.received = Some(last_good.received());
                    state.server_version = Some(last_good.version);
                    state.published = last_good.domains;
                    state.is_kept = true;
                }
                Err(problem) => {
                    tracing::warn!("the last good rules cannot be used by this program: {problem}");
                }
            }
        }
        let is_kept = state.is_kept;
        let origin = Origin::Xds(XdsRules {
            server,
            node: followed.node.clone(),
            versions: Mutex::new(versions),
            state: Mutex::new(state),
        });
        let book = Self::new(origin, settings, u64::from(is_kept));
        book.has_rules.store(is_kept, Ordering::Release);
        let problems = rules.warnings().clone();
        (book, rules, problems)
    }

    pub(super) fn xds(&self) -> Option<&XdsRules> {
        match &self.origin {
            Origin::Xds(xds) => Some(xds),
            _ => None,
        }
    }

    /// Puts the resources of a response in force, if all of them are good. Blocks while it reads them. An error says
    /// what is wrong.
    pub(crate) fn take(
        &self,
        gate: &Gate,
        response: &XdsResponse,
    ) -> Result<TakenResponse, String> {
        let Some(xds) = self.xds() else {
            return Ok(TakenResponse::default());
        };
        let taken = decoded(&response.resources).and_then(|domains| {
            let held = xds.state.lock().held_by(response.is_first, &domains);
            let taken = self.put_in_force(xds, gate, &domains, &held)?;
            let mut state = xds.state.lock();
            state.received = Some(now());
            state.server_version = Some(response.version.clone());
            (state.published, state.held) = (domains, held);
            (state.is_kept, state.failure) = (false, None);
            match taken.version {
                Some(_) => state.accepted += 1,
                None => state.unchanged += 1,
            }
            Ok(taken)
        });
        match &taken {
            Ok(taken) => {
                *self.problem.write() = None;
                self.loads.count(true);
                if taken.version.is_some() {
                    self.keep(xds.last_good());
                }
            }
            Err(problem) => self.refuse(problem),
        }
        taken
    }

    /// Lets the domains go that were missing in the first response of a stream. Blocks.
    pub(crate) fn let_go(&self, gate: &Gate) -> Option<TakenResponse> {
        let xds = self.xds()?;
        let state = xds.state.lock();
        if state.held.is_empty() {
            return None;
        }
        let domains = state.published.clone();
        drop(state);
        // Its resources were good with those that go.
        let taken = self.put_in_force(xds, gate, &domains, &[]).ok()?;
        xds.state.lock().held.clear();
        self.keep(xds.last_good());
        Some(taken)
    }

    /// Notes that a response was refused.
    pub(crate) fn refuse(&self, problem: &str) {
        self.loads.count(false);
        *self.problem.write() = Some(problem.to_owned());
        if let Some(xds) = self.xds() {
            xds.state.lock().refused += 1;
        }
    }

    fn put_in_force(
        &self,
        xds: &XdsRules,
        gate: &Gate,
        domains: &[ConfiguredDomain],
        held: &[ConfiguredDomain],
    ) -> Result<TakenResponse, String> {
        let _putting = self.putting.lock();
        let mut taken = TakenResponse {
            held: held.iter().map(|domain| domain.domain.clone()).collect(),
            ..TakenResponse::default()
        };
        let is_same = {
            let state = xds.state.lock();
            state.published == domains && state.held == held
        };
        // The server sends everything again with every change of anything.
        if is_same && self.has_rules() {
            return Ok(taken);
        }
        let mut all = [domains, held].concat();
        sort(&mut all);
        let rules = read(&all, &self.settings)?;
        let before = gate.rules();
        let changes = between(&before, &rules);
        // The first response can be empty.
        if changes.is_empty() && self.has_rules.swap(true, Ordering::AcqRel) {
            return Ok(taken);
        }
        taken.removed = missing_in(&rules, &before);
        taken.problems = rules.warnings().clone();
        drop(before);
        let written = rules.written();
        let version = self.next_version();
        gate.replace_rules(rules);
        self.has_rules.store(true, Ordering::Release);
        let row = row(version, by(&xds.server), changes.clone());
        xds.versions.lock().push(row, &written);
        (taken.version, taken.changes) = (Some(version), changes);
        Ok(taken)
    }
}

impl XdsRules {
    /// Why nothing is changed here.
    pub(super) fn change_error(&self) -> ChangeError {
        ChangeError::FromServer {
            server: self.server.clone(),
        }
    }

    /// The rules in force, to be kept.
    fn last_good(&self) -> LastGood {
        let state = self.state.lock();
        LastGood {
            node: self.node.clone(),
            version: state.server_version.clone().unwrap_or_default(),
            received: state.received.unwrap_or_else(now).as_micros(),
            domains: state.published.clone(),
            files: Vec::new(),
        }
    }
}

impl XdsState {
    /// The domains that stay although a response lacks them. A management server that starts publishes its gateways one
    /// after the other.
    fn held_by(&self, is_first: bool, domains: &[ConfiguredDomain]) -> Vec<ConfiguredDomain> {
        let lacks = |known: &&ConfiguredDomain| {
            let name = |domain: &ConfiguredDomain| domain.domain == known.domain;
            !domains.iter().any(name)
        };
        let published = self.published.iter().filter(|_| is_first);
        let held = published.chain(&self.held).filter(lacks);
        held.cloned().collect()
    }
}

/// The author of versions.
fn by(server: &str) -> String {
    format!("xds:{server}")
}

fn read(domains: &[ConfiguredDomain], settings: &RuleSettings) -> Result<RuleSet, String> {
    let rules = RuleSet::from_descriptors(&documents(domains), &settings.at(now()));
    rules.map_err(|problems| {
        let texts: Vec<String> = problems.errors().take(NAMED).map(named).collect();
        let more = problems.error_count().saturating_sub(texts.len());
        let more = match more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!("{}{more}", texts.join("; "))
    })
}
