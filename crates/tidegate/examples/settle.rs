//! Limits a language model by tokens: an estimate is reserved before each call, the true cost is settled after it.
//!
//! Run it with `cargo run -p tidegate --example settle`.

use std::error::Error;

use tidegate::rules::RuleSet;
use tidegate::{Attributes, Costs, CostsError, Gate, MemoryStore};

/// Reserved before the call, because the length of the answer is not known yet.
const ESTIMATE: u64 = 400;

const RULES: &str = "
rules:
  - {id: requests, per: [team], limit: 100/minute}
  - {id: tokens, per: [team], unit: tokens, limit: 2000/minute}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(RULES)?);
    let mut attributes = Attributes::new();
    attributes.insert("team", "a")?;
    for question in 1..=4 {
        let guard = gate.reserve(&attributes, tokens(ESTIMATE)?).await?;
        if guard.decision().is_denied() {
            let wait = guard.decision().retry_after();
            println!("question {question}: denied, try again in {wait:?}");
            continue;
        }
        let used = answer(question);
        // Takes the rest, or gives back what was too much. Never denied, because the tokens are spent.
        let settlement = guard.settle(tokens(used)?).await?;
        let (given_back, overrun) = (settlement.given_back(), settlement.overrun());
        println!(
            "question {question}: {used} tokens; given back {given_back:?}, overrun {overrun:?}"
        );
    }
    Ok(())
}

fn tokens(tokens: u64) -> Result<Costs, CostsError> {
    Costs::by_unit([("tokens", tokens)])
}

/// Stands for the call to the model. Returns how many tokens it took.
fn answer(question: u64) -> u64 {
    question * 300
}
