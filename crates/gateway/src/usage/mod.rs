//! The cost of requests to language models: their bodies are read before they are decided (`prepare.rs`), and what their
//! answers report is settled before the end of the answer passes on (`call.rs`, `body.rs`). What bodies say is read by
//! `tidegate-usage`.

mod body;
mod call;
mod prepare;

pub(crate) use body::UsageBody;
pub(crate) use call::ModelCall;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tidegate_usage::{EstimateSettings, FormName, PriceList, UsageResult, UsageSetting};

use crate::body_start::StartRoom;
use crate::settings::{DeniedBody, UsageNotes, UsageSettings};

/// How the cost of requests to language models is read, and what became of it.
pub(crate) struct UsageReading {
    estimate: EstimateSettings,
    body_limit: usize,
    denied_body: DeniedBody,
    notes: Option<UsageNotes>,
    prices: Arc<ArcSwap<PriceList>>,
    room: StartRoom,
    pub(crate) results: Arc<UsageResults>,
}

impl UsageReading {
    pub(crate) fn new(settings: &UsageSettings) -> Self {
        Self {
            estimate: settings.estimate.clone(),
            body_limit: settings.body_limit,
            denied_body: settings.denied_body,
            notes: settings.notes.clone(),
            prices: Arc::clone(&settings.prices),
            room: StartRoom::of(settings.body_memory),
            results: Arc::default(),
        }
    }

    /// The words in which a client is denied, by the setting of its route and its path.
    fn denial_form(&self, usage: &UsageSetting, path: &str) -> Option<FormName> {
        match self.denied_body {
            DeniedBody::Problem => None,
            DeniedBody::Of(form) => Some(form),
            DeniedBody::Form => usage.form(path).map(tidegate_usage::UsageForm::name),
        }
    }
}

/// How often the usage of requests ended in each way.
#[derive(Debug, Default)]
pub(crate) struct UsageResults([AtomicU64; UsageResult::ALL.len()]);

impl UsageResults {
    fn count(&self, result: UsageResult) {
        let index = UsageResult::ALL.iter().position(|known| *known == result);
        if let Some(count) = index.and_then(|index| self.0.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        UsageResult::ALL
            .iter()
            .map(|result| result.name())
            .zip(counts)
    }
}

/// As an extension of an answer: the gateway made it, because no server answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unanswered {
    /// Whether a server may have got the request.
    pub(crate) may_be_sent: bool,
}
