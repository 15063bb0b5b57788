//! The answer of `POST /v1/explain` without a server: by rules alone, with nothing used.

use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};
use tidegate::{Gate, MemoryStore};
use tidegate_codec::CodecError;
use tidegate_codec::json::question::CheckRequest;

use super::{HeaderSettings, cut, shown_attributes, write_answer};

/// Explains the request in a body by these rules. The answer is the one of a server that has just started with them
/// and trusts timestamps. Values of secret attributes appear as `digest` shows them.
pub async fn explain_offline(
    rules: RuleSet,
    settings: &RuleSettings,
    digest: &ValueDigest,
    body: &[u8],
) -> Result<Vec<u8>, CodecError> {
    let attributes = CheckRequest::parse(body)?.attributes(true)?;
    let show = |name: &str, value: &str| {
        if settings.is_secret(name) {
            cut(&digest.shown(value))
        } else {
            cut(value)
        }
    };
    let gate = Gate::new(MemoryStore::new(), rules);
    let explanation = gate.explain(&attributes, &show).await;
    let members = shown_attributes(&attributes, show);
    Ok(write_answer(
        &explanation,
        members,
        HeaderSettings::default(),
    ))
}
