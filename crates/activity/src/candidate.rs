//! The activity of the candidates of rules: counted like a rule, under a name that no rule has.

/// Begins the names of candidates.
const MARK: char = '~';

/// What the candidate of a rule is counted as.
pub fn candidate_of_rule(rule: &str) -> String {
    format!("{MARK}{rule}")
}

/// The rule whose candidate is counted under this name; none if it is the name of a rule.
pub fn rule_of_candidate(name: &str) -> Option<&str> {
    name.strip_prefix(MARK)
}
