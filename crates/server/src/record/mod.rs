//! Records decisions of every front end to a file, from which `tidegate simulate` makes them again.
//!
//! The gate's observer gives each decision to a [`Recorder`], which writes its line in memory (`queue.rs`); a thread of
//! its own writes the lines to the file (`writer.rs`), which is rotated (`file.rs`). `sample.rs` chooses clients. What a
//! line has is in `tidegate_codec::record`.

mod file;
mod queue;
mod sample;
mod writer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate::gate::Observed;
use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};
use tidegate::{Clock as _, SystemClock};
use tidegate_codec::record::{
    RecordHeader, RecordedAttributes, decided_at, is_recorded, write_decision,
};
use tidegate_identity::{AttributeSource, IdentifySettings};

use crate::config::{Config, RecordSettings};
use queue::{Mark, RecordQueue};
use sample::ClientSample;
use writer::{RecordState, RecordWriter};

/// Room for a usual line.
const USUAL_LINE: usize = 512;

/// Asks for the version of the rules in force.
type AskVersion = Box<dyn Fn() -> u64 + Send + Sync>;

/// Records decisions.
pub(crate) struct Recorder {
    settings: RecordSettings,
    rule_settings: RuleSettings,
    digest: Arc<ValueDigest>,
    /// The attributes that are recorded whether the rules read them or not: those that the table of clients gives.
    of_clients: Vec<String>,
    /// None if all clients are recorded.
    sample: Option<ClientSample>,
    rules_version: AskVersion,
    recorded: ArcSwap<RecordedAttributes>,
    queue: Arc<RecordQueue>,
    state: Arc<RecordState>,
}

impl Recorder {
    /// Starts to record, if the settings say so. The file is opened once the rules are known.
    pub(crate) fn start(
        config: &Config,
        digest: &Arc<ValueDigest>,
        rules_version: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> io::Result<Option<Self>> {
        let Some(settings) = config.record.clone() else {
            return Ok(None);
        };
        let rule_settings = config.rule_settings.clone();
        let empty = RecordedAttributes::new(&RuleSet::empty(), &rule_settings, digest);
        let (queue, state) = (Arc::new(RecordQueue::new()), Arc::default());
        RecordWriter::start(&settings, Arc::clone(&queue), Arc::clone(&state))?;
        Ok(Some(Self {
            sample: ClientSample::of(&settings, &rule_settings, digest),
            of_clients: attributes_of_clients(&config.identify),
            settings,
            rule_settings,
            digest: Arc::clone(digest),
            rules_version: Box::new(rules_version),
            recorded: ArcSwap::from_pointee(empty),
            queue,
            state,
        }))
    }

    /// Records what these rules read from now on.
    pub(crate) fn rules_changed(&self, rules: &RuleSet) {
        let recorded = RecordedAttributes::new(rules, &self.rule_settings, &self.digest);
        let recorded = recorded.with(&self.of_clients);
        let (version, rules_version) = (env!("CARGO_PKG_VERSION"), (self.rules_version)());
        let header = RecordHeader::new(version, rules_version, &recorded);
        let header = header.sampled(self.settings.sample, &self.settings.sample_by);
        self.recorded.store(Arc::new(recorded));
        self.queue.mark(Mark::Rules(Arc::new(header)));
    }

    /// Records a decision, unless it only asks or its client is not in the sample. Waits for no disk.
    pub(crate) fn decided(&self, observed: &Observed<'_, '_>) {
        let is_sampled = |sample: &ClientSample| sample.has(observed);
        if !is_recorded(observed) || !self.sample.as_ref().is_none_or(is_sampled) {
            return;
        }
        let at = decided_at(observed).unwrap_or_else(|| SystemClock.now());
        let mut line = Vec::with_capacity(USUAL_LINE);
        write_decision(&mut line, observed, at, &self.recorded.load());
        if !self.queue.push(&line) {
            self.state.lose(1);
        }
    }

    /// Opens the file anew, as soon as the lines before are written.
    pub(crate) fn reopen(&self) {
        self.queue.mark(Mark::Reopen);
    }

    /// Records nothing more. Waits until all lines are written, but no longer than `patience`.
    pub(crate) fn finish(&self, patience: Duration) {
        self.queue.close(patience);
    }

    /// The problem, if lines cannot be written.
    pub(crate) fn warning(&self) -> Option<String> {
        let problem = self.state.problem()?;
        let file = self.settings.file.display();
        Some(format!(
            "decisions cannot be recorded to `{file}`: {problem}"
        ))
    }

    /// How many decisions were recorded, and how many were lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.state.lines(), self.state.lost())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue.close(Duration::ZERO);
    }
}

/// The attributes that come from the table of clients.
fn attributes_of_clients(identify: &IdentifySettings) -> Vec<String> {
    let is_column = |source: &AttributeSource| matches!(source, AttributeSource::Client(_));
    let attributes = identify.attributes.iter();
    attributes
        .filter(|(_, sources)| sources.iter().any(is_column))
        .map(|(name, _)| name.clone())
        .collect()
}
