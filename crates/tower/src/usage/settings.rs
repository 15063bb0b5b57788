//! How the cost of requests to language models is read.

use std::fmt;
use std::sync::Arc;

use tidegate::Costs;
use tidegate_usage::{EstimateSettings, FormName, MoneyUnit, PriceList, UsageResult};

use crate::body_memory::BodyPool;

/// Where the prices of models are found. Asked for each request, because they may change.
pub type PriceLookup = Arc<dyn Fn() -> Arc<PriceList> + Send + Sync>;

/// Finds where the costs of the request that this thread works on are noted, if anywhere.
pub type UsageNotes = Arc<dyn Fn() -> Option<Arc<dyn UsageNote>> + Send + Sync>;

/// How the cost of requests to language models is read.
#[derive(Clone)]
pub struct UsageSettings {
    /// How requests are estimated.
    pub estimate: EstimateSettings,
    /// The longest body that is read, in bytes. By default 8 MiB.
    pub body_limit: usize,
    /// The memory for bodies that are held at a time. By default 256 MiB.
    pub body_memory: Arc<BodyPool>,
    /// The words in which clients are denied.
    pub denied_body: DeniedBody,
    /// Where the costs of requests are noted, for an access log.
    pub notes: Option<UsageNotes>,
    /// What models cost. By default none has a price.
    pub prices: PriceLookup,
}

/// Where the costs of one request are noted.
pub trait UsageNote: Send + Sync {
    /// What it may cost, and its model.
    fn estimated(&self, model: Option<&str>, estimate: &Costs);
    /// What it costs after all, and why.
    fn settled(&self, result: UsageResult, costs: &Costs);
}

/// The words in which clients are denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeniedBody {
    /// Those of the usage form, if there is one.
    #[default]
    Form,
    /// A problem document.
    Problem,
    /// Those of one provider.
    Of(FormName),
}

impl Default for UsageSettings {
    fn default() -> Self {
        let prices = Arc::new(PriceList::new(MoneyUnit::default()));
        Self {
            estimate: EstimateSettings::default(),
            body_limit: 8 << 20,
            body_memory: BodyPool::new(256 << 20),
            denied_body: DeniedBody::Form,
            notes: None,
            prices: Arc::new(move || Arc::clone(&prices)),
        }
    }
}

impl fmt::Debug for UsageSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageSettings")
            .field("estimate", &self.estimate)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}
