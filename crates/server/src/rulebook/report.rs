//! What a rule book reports: its metrics, and what is logged of its rules.

use prometheus_client::registry::Registry;
use tidegate::document::{Place, Problems};

use super::RuleBook;
use crate::telemetry::{counter, gauge};

/// What a server without rules does.
pub(crate) const NO_RULES: &str = "there are no rules, so every request is allowed; add some with `tidegate rules apply -f FILE`, or start with --rules FILE";

impl RuleBook {
    /// Registers the version in force, and how reloading went.
    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let (reloads, failures) = self.reloads();
        registry.register(
            "rules_version",
            "Which version of the rules is in force",
            gauge(self.version()),
        );
        registry.register(
            "rule_reloads",
            "How often the file of the rules was read again",
            counter(reloads),
        );
        registry.register(
            "rule_reload_failures",
            "How often that failed, and the rules stayed as they were",
            counter(failures),
        );
        let is_stale = u64::from(self.problem().is_some());
        registry.register(
            "rules_stale",
            "1 if the file of the rules cannot be used as it is now",
            gauge(is_stale),
        );
    }

    /// Logs what should be looked at in rules that were read, each with its place in the file.
    pub(crate) fn log_warnings(&self, problems: &Problems) {
        for problem in problems.warnings() {
            if let (Some(file), Place::Text { line, column, .. }) = (self.file(), &problem.place) {
                tracing::warn!("{}:{line}:{column}: {problem}", file.display());
            } else {
                tracing::warn!("{problem}");
            }
        }
    }
}
