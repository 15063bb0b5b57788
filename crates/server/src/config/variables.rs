//! Unknown environment variables: a misspelt one is an error, because its setting would silently be missing.

use tidegate::document::{Place, Problems, Spot};

use super::{SETTINGS, Setting};

/// The prefix of every variable of Tidegate.
const PREFIX: &str = "TIDEGATE_";

/// Variables that are not settings of the file: secrets, and variables that only commands read.
const OTHERS: [&str; 7] = [
    "TIDEGATE_TOKEN",
    "TIDEGATE_SERVER",
    "TIDEGATE_CLIENT_CERT",
    "TIDEGATE_CLIENT_KEY",
    "TIDEGATE_KEY_SECRET",
    "TIDEGATE_REDIS_PASSWORD",
    "TIDEGATE_REDIS_SENTINEL_PASSWORD",
];

/// The most edits between a misspelt name and a known one.
const MISSPELT: usize = 2;

/// Reports every unknown variable of Tidegate among `set`. `named` are those that the file names.
pub(super) fn check(
    set: &[String],
    named: &[String],
    notes: &mut Vec<String>,
    problems: &mut Problems,
) {
    let settings: Vec<String> = SETTINGS.iter().filter_map(Setting::variable).collect();
    let named = settings.iter().chain(named).map(String::as_str);
    let known: Vec<&str> = named.chain(OTHERS).collect();
    for name in set.iter().filter(|name| name.starts_with(PREFIX)) {
        if known.contains(&name.as_str()) || is_of_kubernetes(name) {
            continue;
        }
        let edits = known.iter().map(|known| (edits(name, known), *known));
        match edits.min() {
            Some((edits, near)) if edits <= MISSPELT => problems.error(
                &Place::Setting(name.clone()),
                &Spot::document(),
                format!(
                    "no setting has this variable; did you mean `{near}`? rename it or unset it"
                ),
            ),
            _ => notes.push(format!(
                "the environment variable `{name}` has no effect: no setting has it"
            )),
        }
    }
}

/// Whether Kubernetes sets such a variable for each service in a namespace.
fn is_of_kubernetes(name: &str) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") {
        return true;
    }
    let follows = |rest: &str| rest.is_empty() || rest.starts_with('_');
    if let Some((_, rest)) = name.split_once("_SERVICE_PORT")
        && follows(rest)
    {
        return true;
    }
    name.match_indices("_PORT_").any(|(at, found)| {
        let Some((port, rest)) = name[at + found.len()..].split_once('_') else {
            return false;
        };
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let mut protocols = ["TCP", "UDP", "SCTP"].into_iter();
        is_number && protocols.any(|protocol| rest.strip_prefix(protocol).is_some_and(follows))
    })
}

/// The edit distance of two texts: insertions, removals, replacements and swaps of neighbours.
fn edits(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let width = other.len() + 1;
    let mut table = vec![0; (one.len() + 1) * width];
    let at = |row: usize, column: usize| row * width + column;
    for row in 0..=one.len() {
        for column in 0..=other.len() {
            if row == 0 || column == 0 {
                table[at(row, column)] = row + column;
                continue;
            }
            let is_same = one[row - 1] == other[column - 1];
            let mut least = (table[at(row - 1, column - 1)] + usize::from(!is_same))
                .min(table[at(row - 1, column)] + 1)
                .min(table[at(row, column - 1)] + 1);
            let is_exchanged = row > 1
                && column > 1
                && one[row - 1] == other[column - 2]
                && one[row - 2] == other[column - 1];
            if is_exchanged {
                least = least.min(table[at(row - 2, column - 2)] + 1);
            }
            table[at(row, column)] = least;
        }
    }
    table.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("",      "",      0),
            ("",      "ab",    2),
            ("HTTP",  "HTTP",  0),
            ("HTPP",  "HTTP",  1),
            ("HTTPS", "HTTP",  1),
            ("HTP",   "HTTP",  1),
            ("TOKNE", "TOKEN", 1),
            ("OTKNE", "TOKEN", 2),
            ("ABC",   "CBA",   2),
            ("RULE",  "GRPC",  4),
        ];
        for (one, other, expected) in table {
            assert_eq!(edits(one, other), expected, "{one} {other}");
            assert_eq!(edits(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_misspelt_variable_is_an_error_with_the_one_that_was_meant() {
        let check = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|name| (*name).to_owned()).collect();
            let (mut notes, mut problems) = (Vec::new(), Problems::new());
            let named = ["TIDEGATE_OPS_TOKEN".to_owned()];
            super::check(&set, &named, &mut notes, &mut problems);
            let errors: Vec<String> = problems.errors().map(ToString::to_string).collect();
            (errors.join("\n"), notes.join("\n"))
        };
        for (name, meant) in [
            ("TIDEGATE_HTPP", "TIDEGATE_HTTP"),
            ("TIDEGATE_TOKNE", "TIDEGATE_TOKEN"),
            ("TIDEGATE_TKOEN", "TIDEGATE_TOKEN"),
            ("TIDEGATE_SERVERS", "TIDEGATE_SERVER"),
            ("TIDEGATE_REDIS_PASWORD", "TIDEGATE_REDIS_PASSWORD"),
            ("TIDEGATE_DATADIR", "TIDEGATE_DATA_DIR"),
            ("TIDEGATE_NAME_SPACE", "TIDEGATE_NAMESPACE"),
            ("TIDEGATE_OSP_TOKEN", "TIDEGATE_OPS_TOKEN"),
        ] {
            let (errors, notes) = check(&[name]);
            assert!(
                errors.contains(&format!("did you mean `{meant}`?")),
                "{name}: {errors}"
            );
            assert_eq!(notes, "");
        }
        // Known, of other programs, or of Kubernetes.
        let fine = [
            "TIDEGATE_HTTP",
            "TIDEGATE_TOKEN",
            "TIDEGATE_SERVER",
            "TIDEGATE_KEY_SECRET",
            "TIDEGATE_OPS_TOKEN",
            "PATH",
            "TIDEGATE",
            "TIDEGATE_PORT",
            "TIDEGATE_SERVICE_HOST",
            "TIDEGATE_SERVICE_PORT",
            "TIDEGATE_SERVICE_PORT_HTTP",
            "TIDEGATE_PORT_8080_TCP",
            "TIDEGATE_PORT_8080_TCP_ADDR",
            "TIDEGATE_PORT_53_UDP_PROTO",
            "TIDEGATE_GRPC_PORT",
            "TIDEGATE_REDIS_PORT_6379_TCP",
        ];
        assert_eq!(check(&fine), (String::new(), String::new()));
        for unknown in [
            "TIDEGATE_COLOUR_OF_LOGS",
            "TIDEGATE_PORT_X_TCP",
            "TIDEGATE_PORT_80_TCPX",
        ] {
            let (errors, notes) = check(&[unknown]);
            assert_eq!(errors, "");
            assert!(notes.contains(unknown), "{notes}");
        }
    }
}
