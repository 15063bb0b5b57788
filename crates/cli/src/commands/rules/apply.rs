//! `tidegate rules apply`: applies the rules of a file to the server, atomically.

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tidegate_server::rulebook::id_of;

use super::changes::{Changes, merged};
use super::file::{self, SettingsArgs};
use super::remote::Remote;
use crate::client::ApiClient;
use crate::exit::Answer;
use crate::output::{self, BAD, CAREFUL, GOOD, plain, styled};

/// How often to retry when the rules were changed meanwhile.
const MAX_RETRIES: usize = 5;

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The rule file, YAML or JSON; `-` is stdin
    #[arg(long, short, value_name = "FILE")]
    file: String,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Remove rules that are not in the file, and put them in the file's order
    #[arg(long)]
    prune: bool,

    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &ApplyArgs, client: &ApiClient, json: bool) -> anyhow::Result<Answer> {
    let settings = args.settings.settings();
    let (rules, _) = file::rules(&args.file, &settings, json)?;
    for _ in 0..=MAX_RETRIES {
        let remote = Remote::read(client)?;
        let wanted = if args.prune {
            rules.clone()
        } else {
            merged(&remote.rules, &rules)
        };
        let changes = Changes::between(&remote.rules, &wanted, &settings);
        if changes.is_empty() || args.dry_run {
            report(&changes, args.dry_run, remote.version, json)?;
            return Ok(Answer::Yes);
        }
        if let Some(replaced) = remote.replace(client, &wanted)? {
            report(&changes, false, replaced.version, json)?;
            return Ok(Answer::Yes);
        }
    }
    bail!(
        "the rules at {} were changed by others during each attempt; nothing was applied, try again",
        &client.server
    )
}

fn report(
    changes: &Changes,
    is_dry_run: bool,
    version: Option<u64>,
    json: bool,
) -> std::io::Result<()> {
    let mut object = changes.ids_as_json();
    object["dry_run"] = json!(is_dry_run);
    object["version"] = json!(version);
    output::print_either(json, &object, || report_text(changes, is_dry_run, version))
}

fn report_text(changes: &Changes, is_dry_run: bool, version: Option<u64>) -> String {
    if changes.is_empty() {
        return "nothing to change\n".to_owned();
    }
    let word = |done: &'static str, planned: &'static str| if is_dry_run { planned } else { done };
    let Changes(diff) = changes;
    let after: Vec<Value> = diff.changed.iter().map(|(_, rule)| rule.clone()).collect();
    let kinds = [
        (GOOD, word("added", "would add"), &diff.added),
        (CAREFUL, word("changed", "would change"), &after),
        (BAD, word("removed", "would remove"), &diff.removed),
    ];
    let mut lines = Vec::new();
    for (style, word, rules) in kinds {
        let line = |rule| format!("{} {}", styled(style, word), plain(id_of(rule)));
        lines.extend(rules.iter().map(line));
    }
    if let Some((_, order)) = &diff.order {
        let word = styled(CAREFUL, word("changed the order", "would change the order"));
        lines.push(format!("{word}: {}", plain(&order.join(", "))));
    }
    if let (Some(version), false) = (version, is_dry_run) {
        lines.push(format!("the rules are now version {version}"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use tidegate::rules::RuleSettings;

    use super::*;

    #[test]
    fn each_change_is_reported_on_a_line() {
        let rule = |id: &str, limit: &str| json!({"id": id, "per": ["ip"], "limit": limit});
        let before = [rule("a", "1/s"), rule("b", "1/s"), rule("c", "1/s")];
        let after = [rule("c", "1/s"), rule("b", "2/s"), rule("d", "1/s")];
        let changes = Changes::between(&before, &after, &RuleSettings::default());
        let done = report_text(&changes, false, Some(8));
        insta::assert_snapshot!(anstream::adapter::strip_str(&done));
        let planned = report_text(&changes, true, Some(7));
        insta::assert_snapshot!(anstream::adapter::strip_str(&planned));
        assert_eq!(
            report_text(&Changes::default(), false, None),
            "nothing to change\n"
        );
    }
}
