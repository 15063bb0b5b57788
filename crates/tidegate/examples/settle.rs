//! Charges a language model's tokens when they are known: an estimate before the call, the rest after it.
//!
//! Run it with `cargo run -p tidegate --example settle`.

use tidegate::Limiter;

/// Charged before the call: a prompt that costs more than is left is denied, whatever the answer will cost.
const PROMPT: u64 = 200;

fn main() -> Result<(), tidegate::LimitError> {
    let tokens = Limiter::new("2000/minute")?;
    for question in 1..=5 {
        let decision = tokens.check_cost("team-a", PROMPT);
        if decision.is_denied() {
            let wait = decision.retry_after();
            println!("question {question}: denied, try again in {wait:?}");
            continue;
        }
        let answer = answer(question);
        // Never denied, because the tokens are spent. What does not fit is not owed.
        let settled = tokens.settle("team-a", answer);
        let left = settled.remaining();
        println!("question {question}: {PROMPT} and {answer} tokens, {left} left");
    }
    assert!(tokens.check_cost("team-a", PROMPT).is_denied());
    assert!(tokens.check_cost("team-b", PROMPT).is_allowed());
    Ok(())
}

/// Stands for the call to the model. Returns how many tokens its answer has.
fn answer(question: u64) -> u64 {
    question * 250
}
