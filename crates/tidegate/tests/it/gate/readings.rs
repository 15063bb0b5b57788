//! Paths that reach a server in the spelling in which they came: whatever the server takes them for, the
//! rules for that apply.

use proptest::prelude::*;
use tidegate::Attributes;
use tidegate::path::EncodedSlashes;

use super::{NOW, answered, decide, gate};

/// A request with a path that goes on as it is.
fn raw(path: &str, slashes: EncodedSlashes) -> Attributes<'_> {
    let mut attributes = Attributes::new().at(NOW);
    attributes.insert_raw_path(path, slashes).unwrap();
    attributes
}

const RULES: &str = "
- {id: below, match: {path: /v1/**}, per: [], limit: 1000/day}
- {id: search, match: {path: '/v1/search/*'}, per: [], limit: 1000/day}
- {id: login, match: {path: /login}, per: [], limit: 1000/day}
";

#[test]
fn a_rule_applies_if_any_reading_of_the_path_matches() {
    #[rustfmt::skip]
    let table: [(&str, &[&str]); 12] = [
        ("/v1/search/q",                    &["below", "search"]),
        ("/v1/search/q/../../../login",     &["below", "login"]),
        ("/v1/%2e%2e/login",                &["below", "login"]),
        ("/x/..//v1/search/q",              &["below", "search"]),
        ("/v1/search/;q",                   &["below", "search"]),
        ("/v1/search/..;/../../login",      &["below", "login"]),
        ("/login;/../x",                    &[]),
        ("/login;x",                        &["login"]),
        // `new URL` and `parse_url` take the first segment for a host.
        ("//x/v1/search/q",                 &["below", "search"]),
        ("///x/login",                      &["login"]),
        ("/x/v1/search/q",                  &[]),
        ("/x",                              &[]),
    ];
    for (path, applying) in table {
        let gate = gate(RULES);
        let decision = decide(&gate, &raw(path, EncodedSlashes::Keep));
        assert_eq!(answered(&decision), applying, "{path}");
        // Each is charged once, however many readings match.
        let left = decision.limits().map(|answer| answer.outcome.remaining);
        assert!(left.eq(applying.iter().map(|_| 999)), "{path}");
    }
}

#[test]
fn a_path_that_may_name_a_host_is_exempt_only_if_it_is_with_and_without_it() {
    let gate =
        gate("- {id: a, except: [{path: /healthz}, {path: /x/healthz}], per: [], limit: 9/day}");
    for (path, applies) in [
        ("/healthz", false),
        ("/x/healthz", false),
        ("//x/healthz", true),
        ("//healthz", true),
    ] {
        let decision = decide(&gate, &raw(path, EncodedSlashes::Keep));
        assert_eq!(answered(&decision).len(), usize::from(applies), "{path}");
    }
}

#[test]
fn every_part_of_a_rule_goes_by_one_reading_at_a_time() {
    let list = r#"
- {id: prefix, match: {when: 'attributes.path.startsWith("/v1/files/")'}, per: [], limit: 9/day}
- {id: equal, match: {attributes: {path: /v1/files/y}}, per: [], limit: 9/day}
- {id: both, match: {path: /v1/**, when: 'attributes.path == "/v1/x"'}, per: [], limit: 9/day}
- {id: neither, match: {path: /v1/files/**, when: 'attributes.path == "/v1/x"'}, per: [], limit: 9/day}
- {id: failing, match: {when: 'attributes.path == "/none" || attributes.none == "x"'}, per: [], limit: 9/day}
- {id: keyed, per: [path], limit: 9/day}
"#;
    let gate = gate(list);
    let decision = decide(&gate, &raw("/v1/files/../x", EncodedSlashes::Keep));
    assert_eq!(answered(&decision), ["prefix", "both", "keyed"]);
    // The key is the normal form.
    let decision = decide(&gate, &raw("/v1/x", EncodedSlashes::Keep));
    assert_eq!(answered(&decision), ["both", "keyed"]);
    let left: Vec<u64> = decision
        .limits()
        .map(|answer| answer.outcome.remaining)
        .collect();
    assert_eq!(left, [7, 7]);
    let decision = decide(&gate, &raw("/v1/files//../y", EncodedSlashes::Keep));
    assert_eq!(answered(&decision), ["prefix", "equal", "keyed"]);
    let rules = gate.rules();
    let failing = rules.get("failing").unwrap();
    assert_eq!(failing.counts().condition_failures(), 3);
}

#[test]
fn another_path_takes_the_readings_of_the_first_away() {
    let gate = gate(RULES);
    let mut attributes = raw("/v1/../x", EncodedSlashes::Keep);
    attributes.set("path", "/y").unwrap();
    assert_eq!(answered(&decide(&gate, &attributes)), [""; 0]);
    let mut attributes = raw("/v1/../x", EncodedSlashes::Keep);
    attributes
        .set_raw_path("/login/../y", EncodedSlashes::Keep)
        .unwrap();
    assert_eq!(answered(&decide(&gate, &attributes)), [""; 0]);
    attributes.set_raw_path("", EncodedSlashes::Keep).unwrap();
    assert_eq!(attributes.get("path"), None);
}

/// The segments by which a server finds the handler for a path; `None` if it refuses the path.
type Server = fn(&str) -> Vec<String>;

/// Every escape in these tests is of one ASCII character.
fn decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut decoded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at(2);
        decoded.push(char::from(u8::from_str_radix(digits, 16).unwrap()));
        decoded.push_str(rest);
    }
    decoded
}

fn split(path: &str) -> Vec<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

/// Removes dot segments; nothing is left if they lead above the root.
fn resolved(segments: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    for segment in segments {
        match segment.as_str() {
            "." => {}
            ".." => {
                if kept.pop().is_none() {
                    return Vec::new();
                }
            }
            _ => kept.push(segment),
        }
    }
    kept
}

fn collapsed(mut segments: Vec<String>) -> Vec<String> {
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// Splits, then decodes. Rack does the same.
fn express(path: &str) -> Vec<String> {
    split(path).iter().map(|segment| decoded(segment)).collect()
}

/// Decodes, then splits.
fn wsgi(path: &str) -> Vec<String> {
    split(&decoded(path))
}

/// Decodes, merges slashes, resolves.
fn nginx(path: &str) -> Vec<String> {
    resolved(collapsed(split(&decoded(path))))
}

/// Cuts parameters, decodes, merges slashes, resolves; refuses encoded slashes.
fn servlet(path: &str) -> Vec<String> {
    if path.to_ascii_lowercase().contains("%2f") {
        return Vec::new();
    }
    let name = |segment: &String| decoded(segment.split(';').next().unwrap_or_default());
    resolved(collapsed(split(path).iter().map(name).collect()))
}

/// Resolves as a browser does, then decodes.
fn url_standard(path: &str) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for segment in split(&path.replace('\\', "/")) {
        match segment.to_ascii_lowercase().replace("%2e", ".").as_str() {
            "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(decoded(&segment)),
        }
    }
    kept
}

const SERVERS: [(&str, Server); 5] = [
    ("Express", express),
    ("WSGI", wsgi),
    ("nginx", nginx),
    ("a servlet container", servlet),
    ("the URL Standard", url_standard),
];

/// The rules whose handler a server would run.
fn meant(segments: &[String]) -> Vec<&'static str> {
    let mut segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    match segments.as_slice() {
        ["v1", "search", q] if !q.is_empty() => vec!["below", "search"],
        ["v1", ..] => vec!["below"],
        ["login"] => vec!["login"],
        _ => Vec::new(),
    }
}

/// Paths that have much to resolve; with slashes of all kinds if they are not refused before.
fn any_path(has_hidden_slashes: bool) -> impl Strategy<Value = String> {
    let mut pieces = vec![
        "/",
        "/",
        "/",
        "/v1",
        "/v1/search",
        "/login",
        "/x",
        "v%31",
        "search",
        "q",
        ".",
        "..",
        "/..",
        "/../",
        "//",
        "%2e",
        "%2E%2e",
        ";",
        ";x",
        "%3b",
        "%3Bx",
        "/..;",
        "/..%3b",
    ];
    if has_hidden_slashes {
        pieces.extend(["%2f", "%2F..", "\\", "\\..", "%5c", "%5C.."]);
    }
    let pieces = prop::collection::vec(prop::sample::select(pieces), 0..10);
    pieces.prop_map(|pieces| format!("/{}", pieces.concat()))
}

fn check_all_servers(path: &str, slashes: EncodedSlashes) -> Result<(), TestCaseError> {
    let decision = decide(&gate(RULES), &raw(path, slashes));
    let applying = answered(&decision);
    for (name, server) in SERVERS {
        for rule in meant(&server(path)) {
            prop_assert!(
                applying.iter().any(|id| id == rule),
                "{} runs what `{}` limits, for {}, and only {:?} apply",
                name,
                rule,
                path,
                applying
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    #[test]
    fn spellings_that_a_server_takes_for_one_route_are_limited_by_one_rule(path in any_path(false)) {
        for slashes in [EncodedSlashes::Decode, EncodedSlashes::Keep] {
            check_all_servers(&path, slashes)?;
        }
    }

    #[test]
    fn so_are_spellings_with_encoded_slashes_that_are_not_refused(path in any_path(true)) {
        check_all_servers(&path, EncodedSlashes::Decode)?;
    }
}
