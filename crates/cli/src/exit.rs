//! Exit codes: their meanings, and how the answer of a command becomes one.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::client::Refused;
use crate::output;

/// The exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  check, explain, reserve
              0 allowed, 1 denied, 2 error
  all others  0 fine, 1 the answer is no, 2 error (could not ask, bad usage)
              `rules diff`: 1 when there are differences
              `rules validate`: 1 when a file has errors
              `rules test`: 1 when a decision is not the expected one
              `import`: 1 when rules differ in meaning, or parts are left out
              `simulate`: 1 when more is denied than `--max-denied` or
              `--max-newly-denied` accept
              `rules suggest`: 1 when no rule had a request
              `rules get`, `rules delete`, `rules rollout`: 1 when there is no
              such rule
              `rules promote`: 1 when there is no such rule, or nothing to
              promote
              `settle`, `cancel`: 1 when the reservation is gone, or was
              settled with another cost
              `status`: 1 when the server is not ready";

/// The answer of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Allowed, equal, valid or done: 0.
    Yes,
    /// Denied, different, invalid or missing: 1.
    No,
}

/// No answer: bad usage, no server, or a refusal. Clap exits with the same code.
const ERROR: u8 = 2;

/// Turns the result of a command into an exit code. Prints an error to stderr, as an object if the output is
/// JSON.
pub(crate) fn finish(json: bool, answer: anyhow::Result<Answer>) -> ExitCode {
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::FAILURE,
        Err(error) => {
            // If stderr is closed too, the error cannot be shown.
            let _ = if json {
                output::note(&output::json_text(&as_json(&error)))
            } else {
                output::error(&format!("{error:#}"))
            };
            ExitCode::from(ERROR)
        }
    }
}

/// `{"error": text}`, with `status` if the server refused and `problems` if rules are invalid.
fn as_json(error: &anyhow::Error) -> Value {
    let Some(refused) = error.downcast_ref::<Refused>() else {
        return json!({"error": format!("{error:#}")});
    };
    let mut object = json!({"error": refused.message});
    if let Some(status) = refused.status {
        object["status"] = json!(status);
    }
    if !refused.problems.is_empty() {
        object["problems"] = json!(refused.problems);
    }
    object
}
