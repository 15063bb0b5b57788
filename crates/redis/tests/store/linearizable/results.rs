//! Figures for `scripts/linearizability`, which writes them into the documentation.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Writes the figures of a case as JSON into the folder that `TIDEGATE_LINEARIZED_RESULTS` names, if it does.
pub(crate) fn write_result(kind: &str, case: &str, figures: &[(&str, u64)]) {
    let Ok(folder) = std::env::var("TIDEGATE_LINEARIZED_RESULTS") else {
        return;
    };
    let mut text = format!("{{\"kind\": \"{kind}\", \"case\": \"{case}\"");
    for (name, figure) in figures {
        write!(text, ", \"{name}\": {figure}").unwrap();
    }
    text.push_str("}\n");
    let name: String = case.chars().filter(char::is_ascii_alphanumeric).collect();
    std::fs::write(
        PathBuf::from(folder).join(format!("{kind}-{name}.json")),
        text,
    )
    .unwrap();
}
