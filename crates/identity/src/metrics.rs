//! The metrics of tokens and of the fetches of their keys.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::Identity;

type Label = [(&'static str, String); 1];

impl Identity {
    /// Registers the refused tokens, and the fetches of their keys.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let refused = Family::<Label, Counter>::default();
        for (reason, count) in self.refusals() {
            refused
                .get_or_create(&[("reason", reason.to_owned())])
                .inc_by(count);
        }
        registry.register(
            "jwt_refused",
            "Tokens of clients that were refused, by reason",
            refused,
        );
        if let Some((fetched, failed)) = self.fetches() {
            let fetches = Family::<Label, Counter>::default();
            for (result, count) in [("ok", fetched), ("failed", failed)] {
                let labels = [("result", result.to_owned())];
                fetches.get_or_create(&labels).inc_by(count);
            }
            registry.register(
                "jwks_fetches",
                "Fetches of the keys of tokens, by result",
                fetches,
            );
        }
    }
}
