//! Limits whose counters are in Redis, by the keys and the script of the server. JavaScript sends the commands that are
//! made here with the client of the application, and brings back the replies.

use std::error::Error;

use smallvec::SmallVec;
use tidegate_core::limit::wait_for_all;
use tidegate_core::store::ALWAYS_SECRET;
use tidegate_core::{
    Charge, Limit, Micros, Outcome, Outcomes, PermitId, Request, Scope, Timestamp,
};
use tidegate_redis_wire::keys::{KeySecret, RedisKeys, SecretFrom};
use tidegate_redis_wire::namespace::Namespace;
use tidegate_redis_wire::plan::Plan;
use tidegate_redis_wire::wire::{ChargeChange, LuaStep, StepOutcome, arguments, decode};

use crate::given_reply::GivenReply;

/// Limits over Redis.
pub(crate) struct WireLimiter {
    limits: Vec<Limit>,
    scope: Scope,
    keys: RedisKeys,
}

/// A step that was begun, and what it answered.
pub(crate) struct WireStep {
    step: LuaStep,
    /// The limits that were asked.
    limits: Vec<Limit>,
    key: Box<str>,
    cost: u64,
    permit: Option<PermitId>,
    outcomes: Outcomes,
    /// Of a release: whether the permit was held.
    was_live: bool,
    /// Whether the reply says that the step was refused, so that it has changed nothing.
    was_refused: bool,
}

/// What is asked of Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireQuestion {
    Check,
    Peek,
    Settle,
    Forget,
}

/// How a limiter over Redis is set up.
pub(crate) struct WireLimiterSettings<'a> {
    pub(crate) limits: Vec<Limit>,
    pub(crate) name: &'a str,
    pub(crate) per_attribute: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) key_secret: &'a str,
}

impl WireLimiter {
    pub(crate) fn new(settings: WireLimiterSettings<'_>) -> Result<Self, Box<dyn Error>> {
        let WireLimiterSettings {
            name,
            per_attribute,
            namespace,
            key_secret,
            ..
        } = settings;
        // As in rules: the server knows a header by this name only, and whether it is secret.
        if per_attribute.starts_with("header.")
            && per_attribute.bytes().any(|byte| byte.is_ascii_uppercase())
        {
            return Err(format!(
                "the names of headers are lower-case here; write `{}`",
                per_attribute.to_ascii_lowercase()
            )
            .into());
        }
        let is_secret = ALWAYS_SECRET.contains(&per_attribute);
        if is_secret && key_secret.is_empty() {
            return Err(format!(
                "values of `{per_attribute}` are secret and hashed in Redis; give the `keySecret` of the servers"
            )
            .into());
        }
        let scope = Scope::new(&format!("{name}@{per_attribute}"));
        let namespace = match namespace {
            "" => None,
            name => Some(name.parse::<Namespace>()?),
        };
        let secret = match key_secret {
            "" => SecretFrom::Public,
            secret => SecretFrom::Configured(secret.as_bytes()),
        };
        Ok(Self {
            limits: settings.limits,
            scope: if is_secret {
                scope.with_secret_keys()
            } else {
                scope
            },
            keys: RedisKeys::new(namespace.as_ref(), KeySecret::new(secret)),
        })
    }

    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// A step about a key. `max_wait` is how long a check may wait for its turn; `random` makes the id of its permit.
    pub(crate) fn ask(
        &self,
        asked: WireQuestion,
        (key, cost): (&str, u64),
        max_wait: Option<Micros>,
        random: u128,
    ) -> WireStep {
        let limits: Vec<Limit> = match max_wait {
            Some(wait) => self
                .limits
                .iter()
                .map(|limit| limit.patient(wait))
                .collect(),
            None => self.limits.clone(),
        };
        let charges = self.charges(&limits, key, cost);
        let mut held = charges
            .iter()
            .filter(|charge| charge.limit.is_concurrency());
        let held = held.next().filter(|_| asked == WireQuestion::Check);
        let permit = held.map(|charge| {
            let state = self.keys.state(charge.scope, charge.limit, charge.key);
            RedisKeys::permit_for(&state, PermitId::from_u128(random))
        });
        let plan = self.plan(&charges, permit);
        let step = match asked {
            WireQuestion::Check => LuaStep::charge(&self.keys, &plan),
            WireQuestion::Peek => LuaStep::peek(&plan),
            WireQuestion::Settle => LuaStep::settle(&plan),
            WireQuestion::Forget => LuaStep::forget(&plan),
        };
        drop(plan);
        drop(charges);
        WireStep::new(step, limits, (key, cost), permit)
    }

    /// A step that takes back what a step has charged; none if it was denied.
    pub(crate) fn give_back(&self, earlier: &WireStep) -> Option<WireStep> {
        let charges = self.charges(&self.limits, &earlier.key, earlier.cost);
        let plan = self.plan(&charges, earlier.permit);
        let step = LuaStep::give_back(&self.keys, &plan, &earlier.outcomes)?;
        Some(WireStep::new(step, Vec::new(), ("", 0), None))
    }

    /// A step that takes back a cost that was charged at this time.
    pub(crate) fn take_back(&self, key: &str, cost: u64, charged_at: Timestamp) -> WireStep {
        let charges = self.charges(&self.limits, key, cost);
        let change = ChargeChange {
            charged_at,
            delay: Micros::ZERO,
            actual: 0,
        };
        let all: SmallVec<[ChargeChange; 4]> = charges.iter().map(|_| change).collect();
        let step = LuaStep::adjust(&self.keys, &self.plan(&charges, None), &all);
        WireStep::new(step, Vec::new(), ("", 0), None)
    }

    /// A step that releases the permit of a step.
    pub(crate) fn release(&self, earlier: &WireStep) -> Option<WireStep> {
        let step = LuaStep::release(&self.keys, earlier.permit?);
        Some(WireStep::new(step, Vec::new(), ("", 0), None))
    }

    fn charges<'a>(&'a self, limits: &'a [Limit], key: &'a str, cost: u64) -> Vec<Charge<'a>> {
        let charge = |limit| Charge {
            scope: &self.scope,
            limit,
            key,
            cost,
        };
        limits.iter().map(charge).collect()
    }

    fn plan<'a>(&self, charges: &'a [Charge<'a>], permit: Option<PermitId>) -> Plan<'a> {
        let request = Request {
            permit,
            ..Request::new(charges)
        };
        Plan::new(&self.keys, &request)
    }
}

impl WireStep {
    fn new(
        step: LuaStep,
        limits: Vec<Limit>,
        asked: (&str, u64),
        permit: Option<PermitId>,
    ) -> Self {
        Self {
            step,
            limits,
            key: asked.0.into(),
            cost: asked.1,
            permit,
            outcomes: Outcomes::new(),
            was_live: false,
            was_refused: false,
        }
    }

    /// The arguments of its command after the name of the script, one on each line: none has a line break.
    pub(crate) fn arguments(&self) -> String {
        let written: Vec<Vec<u8>> = arguments(&[&self.step]);
        let arguments = written.iter();
        let lines: Vec<_> = arguments
            .map(|line| String::from_utf8_lossy(line))
            .collect();
        lines.join("\n")
    }

    /// Reads the reply to it.
    pub(crate) fn read(&mut self, reply: &str) -> Result<(), Box<dyn Error>> {
        let reply = GivenReply::read(reply).ok_or("the reply does not have the script's form")?;
        let (_, mut answers) = decode(&[&self.step], &reply)?;
        let answer = answers.pop().ok_or("the reply has no answer")?;
        self.was_refused = answer.is_err();
        match answer? {
            StepOutcome::Outcomes(outcomes) => self.outcomes = outcomes,
            StepOutcome::Held { was_live, .. } => self.was_live = was_live,
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.allowed)
    }

    pub(crate) fn holds_permit(&self) -> bool {
        self.permit.is_some() && self.is_allowed()
    }

    pub(crate) fn was_live(&self) -> bool {
        self.was_live
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// How long the request has to wait; nothing if it never may go on.
    pub(crate) fn wait(&self) -> Option<Micros> {
        wait_for_all(&self.limits, &self.outcomes, self.cost)
    }

    /// Whether other requests hold all permits of a concurrency limit.
    pub(crate) fn is_denied_by_holders(&self) -> bool {
        let mut asked = self.limits.iter().zip(&self.outcomes);
        asked.any(|(limit, outcome)| !outcome.allowed && limit.is_concurrency())
    }
}
