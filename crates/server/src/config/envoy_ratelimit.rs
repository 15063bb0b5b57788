//! Whether the server runs in place of envoyproxy/ratelimit, whose variables are then read.

use tidegate::document::{Node, Problems, Spot};
use tidegate_ratelimit::EnvoyRatelimit;

use super::Overrides;

const KEY: &str = "as";
const VARIABLE: &str = "TIDEGATE_AS";

/// The mode, if the flag or the variable asks for it.
pub(super) fn read(overrides: &Overrides<'_>, problems: &mut Problems) -> Option<EnvoyRatelimit> {
    let flag = overrides.flags.iter().find(|(key, _)| *key == KEY);
    let variable = || (overrides.environment)(VARIABLE).filter(|value| !value.is_empty());
    let node = match flag {
        Some((_, value)) => Node::setting("--as", value),
        None => Node::setting(VARIABLE, &variable()?),
    };
    let words = [(EnvoyRatelimit::NAME, EnvoyRatelimit::default())];
    Spot::document().one_of(&node, &words, problems)
}
