//! Counts of candidates.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use smol_str::SmolStr;
use tidegate::gate::ObservedCandidate;
use tidegate::rules::CandidateChange;

/// How many clients of a candidate are counted separately.
const MOST_CLIENTS: usize = 1_000_000;

/// What the candidate of a rule said.
#[derive(Debug, Default)]
pub(crate) struct CandidateTally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) newly_denied: u64,
    pub(crate) newly_allowed: u64,
    clients_denied: HashSet<SmolStr, RandomState>,
    /// Clients with a denied request that had to make room.
    dropped: u64,
}

impl CandidateTally {
    pub(super) fn count(&mut self, observed: &ObservedCandidate<'_, '_>) {
        match observed.change() {
            Some(CandidateChange::NewlyDenied) => self.newly_denied += 1,
            Some(CandidateChange::NewlyAllowed) => self.newly_allowed += 1,
            _ => {}
        }
        if !observed.is_denied() {
            self.allowed += 1;
            return;
        }
        self.denied += 1;
        let Some(key) = observed.key() else {
            return;
        };
        if self.clients_denied.contains(&*key) {
            return;
        }
        if self.clients_denied.len() >= MOST_CLIENTS {
            self.dropped += self.clients_denied.len() as u64;
            self.clients_denied.clear();
        }
        self.clients_denied.insert(SmolStr::new(&*key));
    }

    /// How many clients have a denied request, about as many if some had to make room.
    pub(crate) fn clients_denied(&self) -> u64 {
        self.clients_denied.len() as u64 + self.dropped
    }

    pub(super) fn is_exact(&self) -> bool {
        self.dropped == 0
    }
}
