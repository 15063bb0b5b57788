//! The metrics of a rule book, and the warnings that it logs.

use prometheus_client::registry::Registry;
use tidegate::Micros;
use tidegate::document::{Place, Problems};

use super::RuleBook;
use crate::telemetry::{counter, gauge};

/// What a server without rules of its own does, for logs.
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

    /// What a start without rules is logged as.
    pub(crate) fn no_rules(&self) -> String {
        let Some(path) = self.file().map(|path| path.display()) else {
            return NO_RULES.to_owned();
        };
        format!("there are no rules in `{path}`, so every request is allowed")
    }

    /// What is logged at a start while the rules are not known.
    pub(crate) fn not_loaded(&self) -> String {
        match self.file().map(|path| path.display()) {
            Some(path) => {
                format!("no rules loaded yet; calls fail until those in `{path}` can be used")
            }
            None => "no rules loaded yet; answering 503 until Redis provides them".to_owned(),
        }
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

/// A time as people say it.
pub(super) fn age(since: Micros) -> String {
    let seconds = since.get() / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_by_hand() {
        for (seconds, expected) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (7_200, "2 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(age(Micros::from_seconds(seconds)), expected);
        }
    }
}
