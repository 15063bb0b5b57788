//! Live activity of this server: the decisions that the gate's observer reports, counted in `tidegate_activity`.
//!
//! `answer.rs` and `clients.rs` write the answers of the API, `others.rs` exchanges activity with the instances that
//! share a Redis, `history.rs` keeps counts across restarts, `seen.rs` makes what is kept of a decision: secret values
//! are shown only as digests.

mod answer;
mod clients;
mod history;
mod kept;
mod listed;
mod others;
mod seen;

pub(crate) use answer::{ActivityQuestion, AnswerParts, KeysQuestion, activity_json, keys_json};
pub(crate) use clients::{
    ClientsQuestion, DeniedQuestion, FoundClient, clients_json, denied_json, last_json,
};
pub(crate) use others::OtherInstance;

use std::sync::{Arc, OnceLock};

use tidegate::gate::{
    Charged, ObservedCandidate, ObservedRule, RuleInForce, RuleWatch, RulesInForce, SettledUse,
    UseCounter,
};
use tidegate::rules::{FrontEnd, Rule, RuleSettings, ValueDigest, Verdict};
use tidegate::{Clock as _, SystemClock};
use tidegate_activity::{
    ActivitySettings, LiveActivity, OutcomeCounts, RuleActivity, SeenClient as _, SeenRequest,
    candidate_of_rule,
};

use crate::config::{ActivityMode, Config};
use crate::data_dir::LockedDir;
use history::HistoryFile;
use kept::{KeptEvents, KeptHistory};
use others::KeptParts;
use seen::{GrantTexts, SeenDecision, SettledClient};

/// The activity of this server.
pub(crate) struct ServerActivity {
    pub(crate) live: LiveActivity,
    /// Names this instance among those that share a store.
    pub(crate) instance: String,
    /// Events of streams.
    pub(crate) events: KeptEvents,
    pub(crate) changes: KeptHistory,
    parts: KeptParts,
    /// Where counts are kept across restarts, if they are.
    history: Option<HistoryFile>,
    /// The instance whose history this one continues. Its part may still be in Redis.
    earlier: Option<String>,
    pub(crate) is_anonymous: bool,
    settings: RuleSettings,
    digest: Arc<ValueDigest>,
}

/// The outcome of one request, collected over its rules.
#[derive(Default)]
pub(crate) struct RequestOutcome {
    cost: u64,
    is_shadow_denied: bool,
    is_delayed: bool,
    is_degraded: bool,
}

impl RequestOutcome {
    /// What is counted of a request for a limit that its caller brings.
    pub(crate) fn of_limit(cost: u64, charged: &Charged) -> Self {
        Self {
            cost,
            is_degraded: charged.is_degraded(),
            ..Self::default()
        }
    }

    /// Records the verdict of a rule.
    pub(crate) fn note_rule(&mut self, rule: &ObservedRule<'_, '_>) {
        let verdict = rule.verdict();
        if verdict.is_shadow() {
            self.is_shadow_denied |= verdict.is_denied();
        } else {
            self.is_delayed |= rule.is_delayed();
            self.is_degraded |= rule.is_degraded();
        }
    }

    /// The cost of a request with several parts is that of the most expensive one.
    pub(crate) fn note_cost(&mut self, cost: u64) {
        self.cost = self.cost.max(cost);
    }
}

impl ServerActivity {
    /// The activity of a server, which continues the history in the data directory. None if it is off.
    pub(crate) fn new(
        config: &Config,
        digest: &Arc<ValueDigest>,
        data: Option<&Arc<LockedDir>>,
    ) -> Option<Self> {
        if config.activity == ActivityMode::Off {
            return None;
        }
        let settings = ActivitySettings {
            memory: config.activity_memory,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let now = now();
        let live = LiveActivity::new(&settings, now);
        let earlier = data.and_then(|data| history::restore(data, &live, now));
        Some(Self {
            live,
            instance: random_id(),
            events: KeptEvents::default(),
            changes: KeptHistory::default(),
            parts: KeptParts::default(),
            history: data.and_then(HistoryFile::new),
            earlier,
            is_anonymous: config.activity == ActivityMode::Anonymous,
            settings: config.rule_settings.clone(),
            digest: Arc::clone(digest),
        })
    }

    /// Counts a request after all of its rules.
    pub(crate) fn note_request(&self, request: &RequestOutcome, is_allowed: bool) {
        self.live.add_requests(&OutcomeCounts {
            allowed: u64::from(is_allowed),
            denied: u64::from(!is_allowed),
            shadow_denied: u64::from(request.is_shadow_denied),
            delayed: u64::from(request.is_delayed && is_allowed),
            degraded: u64::from(request.is_degraded),
            cost: if is_allowed { request.cost } else { 0 },
        });
    }

    /// Counts what a request cost that was counted before.
    pub(crate) fn note_cost(&self, cost: u64) {
        self.live.add_requests(&OutcomeCounts {
            cost,
            ..OutcomeCounts::default()
        });
    }

    /// Writes the history to the data directory, if there is one. Waits for the disk.
    pub(crate) fn write_history(&self, rules: &RulesInForce) {
        if let Some(history) = &self.history {
            self.sample(rules);
            history.write(&self.live, &self.instance);
        }
    }

    /// Reads the counters of the rules in force.
    pub(crate) fn sample(&self, rules: &RulesInForce) {
        let rules: Vec<RuleInForce<'_>> = rules.iter().collect();
        let tried = rules.iter().filter(|rule| rule.candidate().is_some());
        let tried: Vec<(String, OutcomeCounts)> = tried
            .map(|rule| (candidate_of_rule(rule.id()), counts_of_candidate(rule)))
            .collect();
        let tried = tried.iter().map(|(name, counts)| (name.as_str(), *counts));
        let counts = rules.iter().map(|rule| (rule.id(), counts_of(rule)));
        self.live.sample(now(), counts.chain(tried));
    }
}

/// Counts the keys of one rule.
pub(crate) struct WatchedRule {
    activity: Arc<ServerActivity>,
    id: String,
    /// Made for the first request, because rules share the memory for it.
    keys: OnceLock<Arc<RuleActivity>>,
    /// Those that its candidate denies.
    tried: OnceLock<Arc<RuleActivity>>,
    grants: GrantTexts,
}

impl WatchedRule {
    pub(crate) fn new(activity: &Arc<ServerActivity>, rule: &Rule) -> Self {
        Self {
            activity: Arc::clone(activity),
            id: rule.id().to_owned(),
            keys: OnceLock::new(),
            tried: OnceLock::new(),
            grants: GrantTexts::default(),
        }
    }
}

impl WatchedRule {
    fn keys(&self) -> &Arc<RuleActivity> {
        self.keys.get_or_init(|| self.activity.live.rule(&self.id))
    }
}

impl RuleWatch for WatchedRule {
    fn decided(&self, rule: &ObservedRule<'_, '_>) {
        let keys = self.keys();
        let client = SeenDecision {
            activity: &self.activity,
            rule,
            grants: &self.grants,
            is_compared: false,
        };
        if rule.verdict().is_denied() {
            match rule.key() {
                Some(key) => keys.denied(&key, &client),
                None => keys.denied_without_key(&client),
            }
        } else {
            let admitted = rule.admitted();
            if let Some(key) = rule.key().filter(|_| admitted > 0) {
                keys.used(&key, admitted, &client);
            }
        }
    }

    fn reserved(&self, rule: &ObservedRule<'_, '_>) -> Option<UseCounter> {
        let (key, keys) = (rule.key()?.into_owned(), Arc::clone(self.keys()));
        let decision = SeenDecision {
            activity: &self.activity,
            rule,
            grants: &self.grants,
            is_compared: false,
        };
        let (request, is_shadow) = (decision.request(), rule.is_shadow());
        let activity = Arc::clone(&self.activity);
        Some(Box::new(move |settled: SettledUse| {
            let client = SettledClient {
                activity: &activity,
                request: SeenRequest {
                    cost: settled.cost,
                    ..request
                },
                is_shadow,
            };
            keys.used(&key, settled.charged, &client);
        }))
    }

    fn tried(&self, candidate: &ObservedCandidate<'_, '_>) {
        let Some(key) = candidate.key().filter(|_| candidate.is_denied()) else {
            return;
        };
        let name = || self.activity.live.rule(&candidate_of_rule(&self.id));
        let client = SeenDecision {
            activity: &self.activity,
            rule: &candidate.as_rule(),
            grants: &self.grants,
            is_compared: true,
        };
        self.tried.get_or_init(name).denied(&key, &client);
    }
}

/// The current time, in Unix seconds.
pub(crate) fn now() -> u64 {
    SystemClock.now().as_micros() / 1_000_000
}

/// All that was counted of a rule. What it allowed and another rule denied was not allowed.
fn counts_of(rule: &RuleInForce<'_>) -> OutcomeCounts {
    let counts = rule.counts();
    let sum = |verdict| {
        let counts = FrontEnd::ALL.map(|front_end| counts.decisions(front_end, verdict));
        counts.iter().sum::<u64>()
    };
    OutcomeCounts {
        allowed: counts.passed() + sum(Verdict::ShadowAllowed),
        denied: sum(Verdict::Denied),
        shadow_denied: sum(Verdict::ShadowDenied),
        delayed: counts.delayed(),
        degraded: counts.degraded().iter().sum(),
        cost: counts.admitted(),
    }
}

/// What was counted of the candidate of a rule.
fn counts_of_candidate(rule: &RuleInForce<'_>) -> OutcomeCounts {
    let counts = rule.counts();
    let sum = |verdict| {
        let counts = FrontEnd::ALL.map(|front_end| counts.decisions(front_end, verdict));
        counts.iter().sum::<u64>()
    };
    OutcomeCounts {
        allowed: sum(Verdict::CandidateAllowed),
        denied: sum(Verdict::CandidateDenied),
        ..OutcomeCounts::default()
    }
}

/// Eight hexadecimal digits.
fn random_id() -> String {
    let mut bytes = [0; 4];
    // Without random numbers all instances have the same name, and the one that publishes last is seen.
    let _ = getrandom::fill(&mut bytes);
    format!("{:08x}", u32::from_be_bytes(bytes))
}
