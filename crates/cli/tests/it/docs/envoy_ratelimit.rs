//! The table of variables of envoyproxy/ratelimit is the one that the program reads by.

use tidegate_server::config::{Effect, KnownVariable, NoteLevel, VARIABLES};

use super::page;

fn row(variable: &KnownVariable) -> String {
    let quoted = |texts: &[&str]| format!("`{}`", texts.join("`, `"));
    let becomes = match variable.effect {
        Effect::Settings(keys) => quoted(keys),
        Effect::Mode(what) => what.to_owned(),
        Effect::Nothing(NoteLevel::Info, why) => format!("– (INFO): {why}"),
        Effect::Nothing(NoteLevel::Warn, why) => format!("– (WARN): {why}"),
    };
    let default = match variable.default {
        "" => " ".to_owned(),
        default => format!(" {} ", quoted(&[default])),
    };
    format!("| `{}` |{default}| {becomes} |", variable.name)
}

#[test]
fn every_variable_of_envoyproxy_ratelimit_is_on_its_page() {
    let page = page("docs/reference/envoy-ratelimit.md");
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| variable |"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.collect();
    let expected: Vec<String> = VARIABLES.iter().map(row).collect();
    assert_eq!(rows, expected);
}
