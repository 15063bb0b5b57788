//! `tidegate explain --rules FILE`: explains a request by a rule file. No server is asked, and nothing is used up.

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use tidegate::rules::{RuleSet, RuleSettings, ValueDigest};

use crate::commands::rules::file;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct OfflineArgs {
    /// Explain by the rules in this file, without a server and as if nothing was used; `-` is stdin
    #[arg(long = "rules", value_name = "FILE", id = "offline_rules")]
    pub(super) rules: Option<String>,
}

/// The answer of a server that has just started with the rules of a file.
pub(super) fn explained(file: &str, body: &Value) -> anyhow::Result<Value> {
    let source = file::source(file)?;
    let settings = RuleSettings::default();
    let rules = RuleSet::read(&source, &settings).map_err(|problems| {
        // If stderr is closed, the problems cannot be shown.
        let _ = output::note(&file::rendered(&problems, &source));
        anyhow::anyhow!(file::summary(&source.name, None, &problems))
    })?;
    // Digests of a server come from its own secret, which is not here.
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).context("no random bytes")?;
    let digest = ValueDigest::new(&secret);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let body = body.to_string();
    let answer = tidegate_server::explain_offline(rules, &settings, &digest, body.as_bytes());
    let answer = runtime.block_on(answer)?;
    Ok(serde_json::from_slice(&answer)?)
}
