//! Counts what each rule says, and prints which keys are denied.
//!
//! Run it with `cargo run -p tidegate --example observer`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::gate::{Observed, Observer};
use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore};

/// How often each rule said what.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<(String, &'static str), u64>>);

impl Observer for Counts {
    fn decided(&self, observed: &Observed<'_, '_>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for part in observed.parts() {
            for rule in part.rules() {
                let (id, verdict) = (rule.rule().id().to_owned(), rule.verdict());
                if verdict.is_denied() {
                    println!("{id}: over the limit, {:?}", rule.key_values());
                }
                *counts.entry((id, verdict.name())).or_default() += 1;
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rules = RuleSet::from_yaml(
        "
rules:
  - {id: per-user, per: [user_id], limit: 2/minute}
  - {id: everyone, per: [], limit: 4/minute, mode: shadow}
",
    )?;
    let counts = Arc::new(Counts::default());
    let gate = Gate::new(MemoryStore::new(), rules).with_observer(counts.clone());

    for user in ["ada", "grace", "ada", "ada", "grace"] {
        let mut request = Attributes::new();
        request.insert("user_id", user)?;
        gate.decide(&request).await;
    }
    for ((rule, verdict), count) in &*counts.0.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("{rule} {verdict}: {count}");
    }
    Ok(())
}
