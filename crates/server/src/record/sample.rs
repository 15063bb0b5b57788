//! Which clients are recorded, if not all: a share of a rate would show no rate, so all requests of a client are
//! recorded or none.

use std::sync::Arc;

use serde_json::json;
use tidegate::gate::Observed;
use tidegate::rules::{KeyShare, Rule, RuleSet, RuleSettings, Source, ValueDigest};

use crate::config::RecordSettings;

/// The name of the share. No rule has it.
const NAME: &str = "@record";

/// The clients that are recorded.
pub(super) struct ClientSample {
    share: KeyShare,
    /// Distinguishes clients as a rule does that counts by the same attributes.
    clients: Option<Arc<Rule>>,
    digest: Arc<ValueDigest>,
}

impl ClientSample {
    /// The sample of these settings. None if all clients are recorded.
    pub(super) fn of(
        settings: &RecordSettings,
        rule_settings: &RuleSettings,
        digest: &Arc<ValueDigest>,
    ) -> Option<Self> {
        if settings.sample == KeyShare::ALL {
            return None;
        }
        let rules = json!({"rules": [{"id": "record", "per": settings.sample_by, "limit": "1/s"}]});
        let rules = RuleSet::read(&Source::new("record", rules.to_string()), rule_settings);
        Some(Self {
            share: settings.sample,
            clients: rules.ok().and_then(|rules| rules.iter().next().cloned()),
            digest: Arc::clone(digest),
        })
    }

    /// Whether the client of a request is recorded. One without these attributes is not.
    pub(super) fn has(&self, observed: &Observed<'_, '_>) -> bool {
        let Some(clients) = &self.clients else {
            return false;
        };
        let mut parts = observed.parts();
        let key = parts.find_map(|part| clients.key_text(part.attributes));
        key.is_some_and(|key| self.share.has_key(&self.digest, NAME, &key))
    }
}
