//! The last good rules of a file or a folder, in place of another server: kept whenever they change, and in force from a start
//! at which those that are there cannot be used.

use std::sync::atomic::Ordering;

use tidegate::rules::RuleSet;

use super::file::RuleTexts;
use super::last_good::{LastGood, node_of_files};
use super::{RuleBook, now, report};

impl RuleBook {
    /// The node whose last good rules a start goes on with, if those of its file or folder cannot be used.
    pub(crate) fn lacks_last_good(&self) -> Option<String> {
        let file = self.rule_file().filter(|_| !self.has_rules())?;
        Some(node_of_files(&file.rules.path))
    }

    /// Goes on with files of an earlier run.
    pub(crate) fn go_on_with(&self, last_good: &LastGood) -> Option<RuleSet> {
        let file = self.rule_file()?;
        let texts = RuleTexts::of_last_good(&file.rules, last_good);
        let rules = match texts.rules(&file.rules, &self.settings) {
            Ok(rules) => rules,
            Err(error) => {
                let problem = error.logged();
                tracing::warn!("the last good rules cannot be used by this program: {problem}");
                return None;
            }
        };
        let at = last_good.received();
        let age = report::age(now().since(at));
        tracing::warn!("the last good rules are in force, read {age} ago");
        self.next_version();
        self.begin_with(file.kind(), &rules, at);
        self.has_rules.store(true, Ordering::Release);
        Some(rules)
    }

    /// Asks for these to be kept, where a start goes on with them.
    pub(super) fn keep_files(&self, texts: &RuleTexts) {
        if let Some(file) = self.rule_file().filter(|file| file.rules.is_lenient) {
            self.keep(texts.last_good(&file.rules.path));
        }
    }
}
