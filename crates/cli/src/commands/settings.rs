//! `tidegate settings`: what the environment and the flags become, and whether the server would start with them.

use clap::Args;
use tidegate_server::config::{NoteLevel, SETTINGS, read_variables, without_password};
use tidegate_server::{Config, check_files};

use crate::exit::{self, Answer};
use crate::output::{self, CAREFUL, TextTable, styled};
use crate::serve::ServeArgs;

/// Parts of the names of variables that have secrets.
const SECRET: [&str; 3] = ["TOKEN", "PASSWORD", "SECRET"];

#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct ShowSettingsArgs {
    #[command(flatten)]
    flags: ServeArgs,
}

pub(crate) fn run(args: &ShowSettingsArgs) -> anyhow::Result<Answer> {
    args.flags.with_overrides(|overrides| {
        let mut table = TextTable::new(&["variable", "value", "becomes"]);
        let variables = read_variables(overrides);
        for fate in variables.iter().flat_map(|read| &read.fates) {
            let became = fate.became.join(", ");
            table.row(vec![fate.name.clone(), fate.value.clone(), became]);
        }
        let mut names = overrides.variables.clone();
        names.sort_unstable();
        for name in names.iter().filter(|name| name.starts_with("TIDEGATE_")) {
            let value = (overrides.environment)(name).unwrap_or_default();
            if value.is_empty() {
                continue;
            }
            let is_secret =
                SECRET.iter().any(|part| name.contains(part)) && !name.ends_with("_FILE");
            let shown = if is_secret {
                "…".to_owned()
            } else {
                without_password(&value)
            };
            let mut settings = SETTINGS.iter();
            let setting = settings.find(|setting| setting.variable().as_deref() == Some(name));
            let became = match setting {
                Some(setting) => format!("{}: {shown}", setting.key.name),
                None if is_secret => "a secret".to_owned(),
                None => "no setting".to_owned(),
            };
            table.row(vec![name.clone(), shown, became]);
        }
        output::print(&table.render())?;
        let notes = variables.iter().flat_map(|read| &read.notes);
        for note in notes.filter(|note| note.level == NoteLevel::Warn) {
            let text = output::plain(&note.text);
            output::print(&format!("{}: {text}\n", styled(CAREFUL, "warning")))?;
        }
        let config = Config::load(overrides)?;
        for problem in check_files(&config)? {
            let text = output::plain(&problem);
            output::print(&format!("{}: {text}\n", styled(CAREFUL, "warning")))?;
        }
        Ok(Answer::Yes)
    })
}
