//! Metrics of the decisions of rules. Each series exists from the start, at zero, so that an alert sees its
//! first event too.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use tidegate::gate::{ReservationEnd, RuleInForce, RulesInForce};
use tidegate::rules::{BudgetKind, CandidateChange, FrontEnd, Mode, Rule, Verdict};
use tidegate::{Gate, Reason, Store};

use super::metrics::gauge;
use super::rule_limits;
use tidegate_listen::Labels;

/// With more rules than this, a series exists from its first event on: a scrape would be mostly zeros.
const MOST_AT_ZERO: usize = 1_000;

/// The counters of all rules.
#[derive(Default)]
struct Families {
    decisions: Family<Labels<3>, Counter>,
    denied: Family<Labels<2>, Counter>,
    degraded: Family<Labels<2>, Counter>,
    condition_failures: Family<Labels<1>, Counter>,
    unread_costs: Family<Labels<1>, Counter>,
    budget_units: Family<Labels<2>, Counter>,
    warned: Family<Labels<1>, Counter>,
    candidate_changes: Family<Labels<2>, Counter>,
    rollout: Family<Labels<1>, Gauge<f64, AtomicU64>>,
}

pub(crate) fn register(registry: &mut Registry, rules: &RulesInForce, front_ends: &[FrontEnd]) {
    let families = Families::default();
    let has_zeros = rules.len() <= MOST_AT_ZERO;
    let shown_at_zero = if has_zeros { front_ends } else { &[] };
    for rule in rules.iter() {
        families.add(&rule, shown_at_zero, has_zeros);
    }
    rule_limits::register(registry, rules);
    registry.register(
        "decisions",
        "Decisions of each rule, by front end and verdict",
        families.decisions,
    );
    registry.register(
        "denied",
        "Requests that each rule denied, by reason",
        families.denied,
    );
    registry.register(
        "degraded",
        "Decisions of a rule without the store, by fallback action",
        families.degraded,
    );
    registry.register(
        "condition_failures",
        "Conditions that could not be evaluated and so did not hold",
        families.condition_failures,
    );
    registry.register(
        "unread_costs",
        "Costs taken from an attribute that was not a whole number",
        families.unread_costs,
    );
    registry.register(
        "budget_units",
        "Units of reservations by rule: reserved, settled, given back, charged above the estimate, or spent without room",
        families.budget_units,
    );
    registry.register(
        "warned",
        "Charges and settlements that took a counter to `warn_at` of its limit",
        families.warned,
    );
    registry.register(
        "candidate_changes",
        "Requests that the candidate of a rule answered differently from its limit: newly denied, or newly allowed",
        families.candidate_changes,
    );
    registry.register(
        "rollout_ratio",
        "The share of keys that a rule's rollout has",
        families.rollout,
    );
    registry.register("rules", "Rules in force", gauge(rules.len() as u64));
}

impl Families {
    fn add(&self, rule: &RuleInForce<'_>, front_ends: &[FrontEnd], has_zeros: bool) {
        let counts = rule.counts();
        let id = || ("rule", rule.id().to_owned());
        for front_end in FrontEnd::ALL {
            for verdict in Verdict::ALL {
                let count = counts.decisions(front_end, verdict);
                let is_possible = front_ends.contains(&front_end) && can_say(rule, verdict);
                if count > 0 || is_possible {
                    let front_end = ("front_end", front_end.name().to_owned());
                    let labels = [id(), front_end, ("verdict", verdict.name().to_owned())];
                    self.decisions.get_or_create(&labels).inc_by(count);
                }
            }
        }
        for reason in Reason::ALL {
            let count = counts.denied(reason);
            if count > 0 || (has_zeros && rule.can_deny_for(reason)) {
                let labels = [id(), ("reason", reason.name().to_owned())];
                self.denied.get_or_create(&labels).inc_by(count);
            }
        }
        let own = rule.on_store_failure() as usize;
        let modes = ["allow", "deny", "local", "error"].into_iter().enumerate();
        for ((index, mode), count) in modes.zip(counts.degraded()) {
            if count > 0 || (has_zeros && index == own) {
                let labels = [id(), ("mode", mode.to_owned())];
                self.degraded.get_or_create(&labels).inc_by(count);
            }
        }
        let has_budget = has_zeros && !rule.unit().is_requests();
        for kind in BudgetKind::ALL {
            let count = counts.budget(kind);
            if count > 0 || has_budget {
                let labels = [id(), ("kind", kind.name().to_owned())];
                self.budget_units.get_or_create(&labels).inc_by(count);
            }
        }
        if counts.warned() > 0 || (has_zeros && rule.warn_at().is_some()) {
            let warned = self.warned.get_or_create(&[id()]);
            warned.inc_by(counts.warned());
        }
        for change in CandidateChange::ALL {
            let count = counts.changes(change);
            if count > 0 || (has_zeros && rule.candidate().is_some()) {
                let labels = [id(), ("change", change.name().to_owned())];
                self.candidate_changes.get_or_create(&labels).inc_by(count);
            }
        }
        if let Some(rollout) = rule.rollout() {
            self.rollout.get_or_create(&[id()]).set(rollout.ratio());
        }
        for (family, count) in [
            (&self.condition_failures, counts.condition_failures()),
            (&self.unread_costs, counts.unread_costs()),
        ] {
            if count > 0 || has_zeros {
                family.get_or_create(&[id()]).inc_by(count);
            }
        }
    }
}

/// Registers the reservations of this server: those that are open in its process or stored in its memory, and how the
/// others ended.
pub(crate) fn register_reservations(registry: &mut Registry, gate: &Gate) {
    let reservations = gate.reservations();
    let (stored, expired) = match gate.store() {
        Store::Memory(store) => {
            let stats = store.stats();
            (stats.reservations as u64, stats.expired_reservations)
        }
        Store::Remote(_) => (0, 0),
    };
    let ended = Family::<Labels<1>, Counter>::default();
    for end in ReservationEnd::ALL {
        let labels = [("end", end.name().to_owned())];
        let of_store = if end == ReservationEnd::Expired {
            expired
        } else {
            0
        };
        let count = reservations.ended(end) + of_store;
        ended.get_or_create(&labels).inc_by(count);
    }
    registry.register(
        "reservations",
        "Reservations that have ended, by how",
        ended,
    );
    registry.register(
        "reservations",
        "Reservations that are open on this server",
        gauge(reservations.open() + stored),
    );
}

/// Whether a rule can give this verdict: by its mode, its candidate and its rollout.
fn can_say(rule: &Rule, verdict: Verdict) -> bool {
    match verdict {
        Verdict::CandidateAllowed | Verdict::CandidateDenied => rule.candidate().is_some(),
        _ if verdict.is_shadow() => {
            let is_rolled_out = rule.rollout().is_some() && rule.candidate().is_none();
            rule.mode() == Mode::Shadow || is_rolled_out
        }
        _ => rule.mode() == Mode::Enforce,
    }
}
