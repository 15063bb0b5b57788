//! What outlasts a restart: the counts by second and minute, and when they were counted. Nothing about clients.

use std::sync::Arc;

use crate::distinct_sketch::DistinctSketch;
use crate::live::LiveActivity;
use crate::part::{ActivityPart, RulePart};
use crate::part_bytes::MOST_RULES;
use crate::room;

/// The minutes whose requests rank a rule that is restored.
const RANKED: u64 = 10;

impl LiveActivity {
    /// The counts of this instance, of the rules with the most traffic. Read the counters first.
    pub fn history(&self) -> ActivityPart {
        let state = self.state.lock();
        let mut rules: Vec<(u64, RulePart)> = Vec::new();
        for known in state.rules.values() {
            let series = known.rule.series.lock().part();
            if !series.minutes.is_empty() {
                let part = RulePart {
                    rule: Arc::clone(known.rule.id()),
                    series,
                    names: Vec::new(),
                    lists: Default::default(),
                    denied: Vec::new(),
                    distinct_denied: [DistinctSketch::default(), DistinctSketch::default()],
                };
                rules.push((known.traffic, part));
            }
        }
        rules.sort_by(|(one, first), (other, second)| {
            other.cmp(one).then_with(|| first.rule.cmp(&second.rule))
        });
        rules.truncate(MOST_RULES);
        ActivityPart {
            total: state.total.part(),
            rules: rules.into_iter().map(|(_, part)| part).collect(),
            is_complete: true,
            coverage: state.coverage.clone(),
            probe: 0,
        }
    }

    /// Continues the history of an earlier process. Call it before anything is counted. Rules for which there is no
    /// memory are left out.
    pub fn restore(&self, history: &ActivityPart, now: u64) {
        let budget = &self.common.budget;
        let mut state = self.state.lock();
        state.coverage.restore(&history.coverage, now);
        state.total.restore(&history.total, now, budget);
        for part in &history.rules {
            if !room::is_free(budget) {
                break;
            }
            let rule = state.learn(&part.rule, &self.common);
            rule.series.lock().restore(&part.series, now, budget);
            let is_ranked = |minute: u64| minute.saturating_add(RANKED) > now / 60;
            let minutes = part.series.minutes.iter();
            let traffic = minutes
                .filter(|(minute, _)| is_ranked(*minute))
                .map(|(_, counts)| counts.requests())
                .fold(0, u64::saturating_add);
            if let Some(known) = state.rules.get_mut(&part.rule) {
                // Also a rule that is idle now is published.
                known.traffic = traffic.max(1);
            }
        }
    }
}
