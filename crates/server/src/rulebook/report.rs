//! The metrics of a rule book, and the warnings that it logs.

use prometheus_client::registry::Registry;
use tidegate::document::{Place, Problems};

use super::RuleBook;
use crate::telemetry::{counter, gauge};

/// What a server without rules does, for logs.
pub(crate) const NO_RULES: &str = "there are no rules, so every request is allowed; add some with `tidegate rules apply -f FILE`, or start with --rules FILE";

impl RuleBook {
    /// Registers the version in force, and how reloading went.
    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let (reloads, failures) = self.reloads();
        registry.register(
            "rules_version",
            "The version of the rules in force",
            gauge(self.version()),
        );
        registry.register("rule_reloads", "Reloads of the rule file", counter(reloads));
        registry.register(
            "rule_reload_failures",
            "Reloads of the rule file that failed, so that the rules stayed as they were",
            counter(failures),
        );
        registry.register(
            "rules_stale",
            "1 if the source of the rules cannot be used as it is now, and those in force are older",
            gauge(u64::from(self.is_stale())),
        );
        self.register_xds(registry);
    }

    /// Logs the warnings about rules, each with its position in the file.
    pub(crate) fn log_warnings(&self, problems: &Problems) {
        for problem in problems.warnings() {
            let file = self.file().map(|file| file.display().to_string());
            let file = problem.source.as_deref().or(file.as_deref());
            match (file, &problem.place) {
                (Some(file), Place::Text { line, column, .. }) => {
                    tracing::warn!("{file}:{line}:{column}: {problem}");
                }
                (Some(resource), Place::Setting(_)) => {
                    tracing::warn!(resource, "{problem}");
                }
                _ => tracing::warn!("{problem}"),
            }
        }
    }
}
