//! Charges a language model's tokens when they are known: an estimate before the call, the true cost after it.
//!
//! Run it with `cargo run -p tidegate --example settle`.

use std::error::Error;

use tidegate::rules::{FrontEnd, RuleSet};
use tidegate::{Attributes, Gate, MemoryStore};

/// Charged before the call, because the length of the answer is not known yet.
const ESTIMATE: u64 = 400;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let rules = "rules: [{id: tokens, per: [team], limit: 2000/minute}]";
    let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(rules)?);
    for question in 1..=4 {
        let mut attributes = Attributes::new().with_cost(ESTIMATE);
        attributes.insert("team", "a")?;
        let rules = gate.rules();
        let receipt = gate.decide_by(&rules, FrontEnd::Library, &attributes).await;
        if receipt.decision().is_denied() {
            let wait = receipt.decision().retry_after();
            println!("question {question}: denied, try again in {wait:?}");
            continue;
        }
        let tokens = answer(question);
        // Takes the rest, or gives back what was too much. Never denied, because the tokens are spent.
        gate.settle(receipt, tokens).await?;
        println!("question {question}: {tokens} tokens");
    }
    Ok(())
}

/// Stands for the call to the model. Returns how many tokens it took.
fn answer(question: u64) -> u64 {
    question * 300
}
