//! The rules that every server of a fault row has: each combination of `sync`, `on_store_failure` and two algorithms, so that one
//! run shows what a fault costs for all of them. Each has a path of its own and one key.

use std::fmt::Write as _;

/// The one client whose requests are counted. Its value is also the hash tag of its keys in Redis.
pub(crate) const USER: &str = "u";
/// The length of a fixed window, in seconds.
pub(crate) const WINDOW_SECONDS: u32 = 2;
const WINDOW_LIMIT: u32 = 100;
/// Of a bucket: requests per second, and its burst.
const BUCKET_LIMIT: u32 = 50;

/// Where the units of a rule come from: `sync` of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleSync {
    Exact,
    Leased,
}

/// `on_store_failure` of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureMode {
    Allow,
    Deny,
    Local,
}

/// The algorithm of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedShape {
    FixedWindow,
    TokenBucket,
}

/// One rule, and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedRule {
    pub(crate) shape: CountedShape,
    pub(crate) sync: RuleSync,
    pub(crate) mode: FailureMode,
}

impl RuleSync {
    pub(crate) const ALL: [Self; 2] = [Self::Exact, Self::Leased];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
        }
    }
}

impl FailureMode {
    pub(crate) const ALL: [Self; 3] = [Self::Allow, Self::Deny, Self::Local];

    fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        }
    }
}

impl CountedShape {
    pub(crate) const ALL: [Self; 2] = [Self::FixedWindow, Self::TokenBucket];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "window",
            Self::TokenBucket => "bucket",
        }
    }
}

impl CountedRule {
    /// All of them, in the order in which load and figures number them.
    pub(crate) fn all() -> Vec<Self> {
        let mut rules = Vec::new();
        for shape in CountedShape::ALL {
            for sync in RuleSync::ALL {
                for mode in FailureMode::ALL {
                    rules.push(Self { shape, sync, mode });
                }
            }
        }
        rules
    }

    pub(crate) fn id(self) -> String {
        let (shape, sync, mode) = (self.shape.name(), self.sync.name(), self.mode.name());
        format!("{sync}-{mode}-{shape}")
    }

    /// What it grants: in a window, or as the burst of a bucket.
    pub(crate) fn limit(self) -> u32 {
        match self.shape {
            CountedShape::FixedWindow => WINDOW_LIMIT,
            CountedShape::TokenBucket => BUCKET_LIMIT,
        }
    }

    /// Requests that it grants in a second.
    pub(crate) fn per_second(self) -> u32 {
        match self.shape {
            CountedShape::FixedWindow => WINDOW_LIMIT / WINDOW_SECONDS,
            CountedShape::TokenBucket => BUCKET_LIMIT,
        }
    }

    fn yaml(self, percent: u32) -> String {
        let (id, sync, mode) = (self.id(), self.sync.name(), self.mode.name());
        let limit = self.limit() * percent / 100;
        let limit = match self.shape {
            CountedShape::FixedWindow => {
                format!("limit: {limit}/{WINDOW_SECONDS}s, algorithm: fixed_window")
            }
            CountedShape::TokenBucket => {
                format!("limit: {limit}/second burst {limit}, algorithm: token_bucket")
            }
        };
        format!(
            "  - {{id: {id}, match: {{path: /{id}}}, per: [user_id], {limit}, sync: {sync}, on_store_failure: {mode}}}\n"
        )
    }
}

/// The rule file of a server.
pub(crate) fn rule_file() -> String {
    rule_file_of(100)
}

/// The rule file with that percentage of each limit.
pub(crate) fn rule_file_of(percent: u32) -> String {
    let mut text = "rules:\n".to_owned();
    for rule in CountedRule::all() {
        let _ = write!(text, "{}", rule.yaml(percent));
    }
    text
}
