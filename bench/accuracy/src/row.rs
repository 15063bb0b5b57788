//! One line of the results.

use serde_json::{Value, json};
use tidegate_core::{Algorithm, Limit};
use tidegate_testkit::accuracy::{Accuracy, title, worst_in_window};

use crate::scenario::Scenario;

/// Denials that were tried again at the time that the limiter named.
#[derive(Default, Clone, Copy)]
pub struct Retries {
    /// How many were tried.
    pub tried: u64,
    /// How many were admitted then.
    pub admitted: u64,
    /// How many were admitted one microsecond before.
    pub early: u64,
    /// How many were admitted one microsecond after, where that was tried.
    pub after: Option<u64>,
}

impl Retries {
    pub fn add(&mut self, (admitted, early): (bool, bool)) {
        self.tried += 1;
        self.admitted += u64::from(admitted);
        self.early += u64::from(early);
    }

    fn to_json(self) -> Value {
        let mut counts = vec![self.tried, self.admitted, self.early];
        counts.extend(self.after);
        counts.into()
    }
}

/// Who decided.
pub struct Contender<'a> {
    pub name: &'a str,
    /// Where the state is: `memory`, `exact`, `leased`; empty for peers.
    pub store: &'a str,
    pub instances: u64,
    /// Whether time was virtual, so that the run can be repeated exactly.
    pub is_virtual: bool,
}

/// A row under the limit that its reference has.
pub fn row(
    scenario: &Scenario,
    contender: &Contender,
    limit: &Limit,
    figures: &Accuracy,
    retries: Option<Retries>,
) -> Value {
    let per_second = scenario.is_drawn().then_some(&figures.per_window);
    json!({
        "scenario": scenario.name,
        "contender": contender.name,
        "store": contender.store,
        "instances": contender.instances,
        "virtual": contender.is_virtual,
        "algorithm": title(limit.algorithm()),
        "limit": scenario.plan.count,
        "worst": worst_in_window(limit),
        "arrivals": figures.arrivals,
        "admitted": figures.admitted,
        "most": figures.most_in_window,
        "over_promise": figures.over_promise,
        "different": figures.different,
        "reference": figures.reference,
        "over_reference": figures.over_reference,
        "under_reference": figures.under_reference,
        "over_ideal": figures.over_ideal,
        "under_ideal": figures.under_ideal,
        "retries": retries.map(Retries::to_json),
        "per_second": per_second,
        "late": late(scenario, figures),
    })
}

/// What was admitted after the first five windows, and what the reference admits then: a lease is sized by what was
/// asked for before. None of shorter runs. The last window is left out, as it may not be whole.
fn late(scenario: &Scenario, figures: &Accuracy) -> Option<[u64; 2]> {
    let windows = usize::try_from(scenario.plan.windows).unwrap_or(0);
    let sum = |per_window: &[u64]| Some(per_window.get(5..windows - 1)?.iter().sum());
    Some([
        sum(&figures.per_window)?,
        sum(&figures.reference_per_window)?,
    ])
}

/// A row that could not be had, with the reason.
pub fn skipped(scenario: &Scenario, name: &str, algorithm: Algorithm, why: &str) -> Value {
    json!({
        "scenario": scenario.name,
        "contender": name,
        "algorithm": title(algorithm),
        "skipped": why,
    })
}
