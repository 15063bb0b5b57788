//! Replaces the rules while requests are decided. What was counted by rules that stay goes on being counted.
//!
//! Run it with `cargo run -p tidegate --example reload`.

use tidegate::rules::RuleSet;
use tidegate::{Attributes, Gate, MemoryStore};

const BEFORE: &str = "rules: [{id: per-user, per: [user_id], limit: 3/hour}]";
const INVALID: &str = "rules: [{id: per-user, per: [user_id], limit: 5/fortnight}]";
const AFTER: &str = "
rules:
  - {id: per-user, per: [user_id], limit: 5/hour}
  - {id: exports, match: {path: /export}, per: [user_id], limit: 1/hour}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(BEFORE)?);
    let mut request = Attributes::new();
    request.insert("user_id", "ada")?;
    request.insert("path", "/export")?;
    for _ in 0..3 {
        assert!(gate.decide(&request).await.is_allowed());
    }
    assert!(gate.decide(&request).await.is_denied());

    // A program would do this when the file has changed.
    for text in [INVALID, AFTER] {
        match RuleSet::from_yaml(text) {
            Ok(rules) => {
                gate.replace_rules(rules);
                println!("{} rules in force", gate.rules().len());
            }
            Err(problems) => println!("the rules stay as they are:\n{problems}"),
        }
    }

    // Three of the five were used before the limit was raised, and `exports` begins with none.
    assert!(gate.decide(&request).await.is_allowed());
    let denied = gate.decide(&request).await;
    println!("denied by {:?}", denied.rule());
    Ok(())
}
