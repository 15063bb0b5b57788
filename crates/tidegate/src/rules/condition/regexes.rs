//! The patterns of `matches` in conditions: made ready when a rule is read, never for a request.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cel::ExecutionError;
use cel::extractors::This;
use parking_lot::RwLock;
use regex::{Regex, RegexBuilder};

/// How large a pattern may be once it is ready, in bytes.
const MAX_SIZE: usize = 64 << 10;

/// Patterns that are in use, and by how many.
type Ready = RwLock<HashMap<String, (usize, Regex)>>;

fn ready() -> &'static Ready {
    static READY: OnceLock<Ready> = OnceLock::new();
    READY.get_or_init(Ready::default)
}

/// Keeps patterns ready as long as it is there.
#[derive(Debug)]
pub(super) struct Patterns {
    texts: Vec<String>,
}

impl Patterns {
    pub(super) fn compile(texts: &[&str]) -> Result<Self, String> {
        let mut compiled = Vec::new();
        for text in texts {
            let regex = RegexBuilder::new(text)
                .size_limit(MAX_SIZE)
                .dfa_size_limit(MAX_SIZE)
                .build()
                .map_err(|error| match error {
                    regex::Error::CompiledTooBig(_) => {
                        format!("the pattern `{text}` is too large; make its repetitions smaller")
                    }
                    error => {
                        let error = error.to_string();
                        let last = error.lines().last().unwrap_or_default();
                        format!(
                            "`{text}` is not a pattern: {}",
                            last.trim_start_matches("error: ")
                        )
                    }
                })?;
            compiled.push(((*text).to_owned(), regex));
        }
        let mut ready = ready().write();
        for (text, regex) in &compiled {
            let uses = ready
                .entry(text.clone())
                .or_insert_with(|| (0, regex.clone()));
            uses.0 += 1;
        }
        let texts = compiled.into_iter().map(|(text, _)| text).collect();
        Ok(Self { texts })
    }
}

impl Drop for Patterns {
    fn drop(&mut self) {
        if self.texts.is_empty() {
            return;
        }
        let mut ready = ready().write();
        for text in &self.texts {
            if let Some(uses) = ready.get_mut(text) {
                uses.0 -= 1;
                if uses.0 == 0 {
                    ready.remove(text);
                }
            }
        }
    }
}

/// `text.matches(pattern)` in a condition.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the form that a function of a condition has"
)]
pub(super) fn matches(
    This(text): This<Arc<String>>,
    pattern: Arc<String>,
) -> Result<bool, ExecutionError> {
    let ready = ready().read();
    match ready.get(pattern.as_str()) {
        Some((_, regex)) => Ok(regex.is_match(&text)),
        None => Err(ExecutionError::function_error(
            "matches",
            "the pattern is not ready",
        )),
    }
}
