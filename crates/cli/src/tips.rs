//! Tips for arguments that people try and that do not exist: clap itself compares only the names of options.

use std::ffi::OsString;

use clap::Parser as _;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::arguments::Cli;

/// Names of attributes that look like options.
const ATTRIBUTES: [&str; 8] = [
    "path", "method", "host", "ip", "user_id", "user-id", "api_key", "tier",
];

/// The command line, or clap's error with a tip of ours if there is one.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, Error> {
    let texts: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    Cli::try_parse_from(words).map_err(|error| with_tip(error, &texts))
}

fn with_tip(mut error: Error, words: &[String]) -> Error {
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && let Some(tip) = tip(unknown, words)
    {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// What was probably meant by an unknown argument. `words` begin with the name of the program.
fn tip(unknown: &str, words: &[String]) -> Option<String> {
    let position = words.iter().position(|word| word == unknown);
    let next = position.and_then(|at| words.get(at + 1));
    let next = next
        .map(String::as_str)
        .filter(|next| !next.starts_with('-'));
    // Clap leaves out the value of `--port=80`.
    let attached = |word: &'_ String| {
        word.strip_prefix(unknown)?
            .strip_prefix('=')
            .map(str::to_owned)
    };
    let value = words
        .iter()
        .find_map(attached)
        .or_else(|| next.map(str::to_owned));
    let value = value.as_deref();
    let mut commands = words.iter().skip(1).filter(|word| !word.starts_with('-'));
    let is_file = [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| unknown.ends_with(end));
    let instead = match (commands.next()?.as_str(), unknown) {
        ("serve", "--port" | "--listen" | "--bind" | "--address" | "-p") => {
            let address = value.unwrap_or("127.0.0.1:8080");
            let is_port = address.bytes().all(|byte| byte.is_ascii_digit());
            let host = if is_port { "127.0.0.1:" } else { "" };
            format!("--http {host}{address}")
        }
        ("serve", "-f" | "--file") => format!("--rules {}", value.unwrap_or("FILE")),
        ("serve", _) if is_file => format!("--rules {unknown}"),
        ("rules", file) if !file.starts_with('-') => match commands.next()?.as_str() {
            "apply" | "diff" => format!("-f {file}"),
            _ => return None,
        },
        ("rules", "-f" | "--file") if words.iter().any(|word| word == "validate") => {
            return Some(format!("write the file without '{unknown}'"));
        }
        ("check" | "explain" | "reset" | "bench", _) => attribute(unknown, value)?,
        _ => return None,
    };
    Some(format!("use '{instead}'"))
}

/// An attribute that was given without `-a`: as `user_id=u1`, or as `--path /x`.
fn attribute(unknown: &str, value: Option<&str>) -> Option<String> {
    if !unknown.starts_with('-') {
        return unknown.contains('=').then(|| format!("-a {unknown}"));
    }
    let name = unknown.trim_start_matches('-');
    let name = ATTRIBUTES.iter().find(|known| **known == name)?;
    Some(format!(
        "-a {}={}",
        name.replace('-', "_"),
        value.unwrap_or("VALUE")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_mistakes_get_a_tip() {
        #[rustfmt::skip]
        let table = [
            ("tidegate serve --port 80",                "use '--http 127.0.0.1:80'"),
            ("tidegate serve --port=80",                "use '--http 127.0.0.1:80'"),
            ("tidegate serve --listen 0.0.0.0:80",      "use '--http 0.0.0.0:80'"),
            ("tidegate serve --bind",                   "use '--http 127.0.0.1:8080'"),
            ("tidegate serve rules.yaml",               "use '--rules rules.yaml'"),
            ("tidegate serve -f rules.yaml",            "use '--rules rules.yaml'"),
            ("tidegate rules diff rules.yaml",          "use '-f rules.yaml'"),
            ("tidegate rules apply rules.yaml",         "use '-f rules.yaml'"),
            ("tidegate rules validate -f rules.yaml",   "write the file without '-f'"),
            ("tidegate check path=/a",                  "use '-a path=/a'"),
            ("tidegate check --path /a",                "use '-a path=/a'"),
            ("tidegate check --user-id=u1",             "use '-a user_id=u1'"),
            ("tidegate reset --user-id u1",             "use '-a user_id=u1'"),
            ("tidegate bench http user_id=u1",          "use '-a user_id=u1'"),
        ];
        for (line, expected) in table {
            let words = line.split(' ').map(OsString::from).collect();
            let error = parse(words).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(&format!("tip: {expected}\n")),
                "{line}\n{text}"
            );
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        let own = parse(
            ["tidegate", "serve", "--rule", "x"]
                .map(OsString::from)
                .to_vec(),
        );
        assert!(
            own.unwrap_err()
                .to_string()
                .contains("tip: a similar argument exists: '--rules'")
        );
        for line in [
            "tidegate check nothing",
            "tidegate rules list x.yaml",
            "tidegate status --x",
        ] {
            let text = parse(line.split(' ').map(OsString::from).collect())
                .unwrap_err()
                .to_string();
            assert!(!text.contains("tip: use"), "{text}");
        }
    }
}
