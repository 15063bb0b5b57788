//! Paths and hosts that servers could take for others than the rules do, through every front end. What goes on in
//! the form in which it was matched may be resolved; what goes on as it came must be limited by every
//! reading; what is ambiguous is refused.

use super::StoryFrontEnd;
use super::scenario::Scenario;

/// Two requests an hour for each of the two rules.
const SCENARIO: &str = r"
rules:
  - {id: v1, match: {path: /v1/**}, per: [header.x-user], limit: 2/hour}
  - {id: host, match: {path: /hosts, host: api.example.com}, per: [header.x-user], limit: 2/hour}
story:
";

/// What becomes of a third request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It is counted by the rule like the other spellings, and denied.
    Counted,
    /// It is another path, to which no rule applies, for the rules and for what comes after.
    Other,
    /// It is refused before it is decided.
    Refused,
}

use Ends::{Counted, Other, Refused};

/// How a front end treats what it is given.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The caller says what the path is.
    Named,
    /// The path goes on as it came.
    Raw,
    /// As it came, but paths with encoded slashes are refused.
    Proxied,
    /// The path goes on as it was matched; paths with encoded slashes are refused.
    Resolved,
}

impl StoryFrontEnd {
    fn kind(self) -> Kind {
        match self {
            Self::Library | Self::Http | Self::Resp => Kind::Named,
            Self::Middleware | Self::Grpc => Kind::Raw,
            Self::Authorize => Kind::Proxied,
            Self::Gateway => Kind::Resolved,
        }
    }
}

#[rustfmt::skip]
const PATHS: [(&str, [Ends; 4]); 18] = [
    // path                                  named    raw      proxied  resolved
    ("/v1/search/foo",                      [Counted, Counted, Counted, Counted]),
    ("//v1//search/f%6fo?x=/../..",         [Counted, Counted, Counted, Counted]),
    ("//x/v1/search",                       [Other,   Counted, Counted, Other]),
    ("///x/v1/search/foo",                  [Other,   Counted, Counted, Other]),
    ("/x/../v1/search",                     [Counted, Counted, Counted, Counted]),
    ("/x/%2e%2e/v1/search;y=1",             [Counted, Counted, Counted, Counted]),
    ("/v1/search/..",                       [Counted, Counted, Counted, Counted]),
    ("/v1/files/a/../../../x",              [Other,   Counted, Counted, Other]),
    ("/v1/files/%2e%2E/%2e%2e/x",           [Other,   Counted, Counted, Other]),
    ("/v1/..;/x",                           [Other,   Counted, Counted, Other]),
    ("/v1/..%3b/x",                         [Other,   Counted, Counted, Other]),
    ("/v1/search/foo%2f..%2f..%2f..%2fx",   [Other,   Counted, Refused, Refused]),
    ("/v1/search#/../../x",                 [Counted, Counted, Counted, Counted]),
    ("/v1%2fsearch",                        [Counted, Counted, Refused, Refused]),
    ("/v1%5csearch",                        [Other,   Counted, Refused, Refused]),
    ("/v1/%zz",                             [Refused, Refused, Refused, Refused]),
    ("/v1/%00",                             [Refused, Refused, Refused, Refused]),
    ("/v1/%ff",                             [Refused, Refused, Refused, Refused]),
];

#[rustfmt::skip]
const HOSTS: [(&str, Ends); 13] = [
    ("api.example.com",         Counted),
    ("API.Example.COM:8443",    Counted),
    ("api.example.com.",        Counted),
    ("api.example.com.:80",     Counted),
    ("other.example.com",       Other),
    ("api.example.com:x",       Refused),
    ("api.example.com:8x",      Refused),
    ("api.example.com:80:80",   Refused),
    ("api.example.com:",        Refused),
    ("api.example.com..",       Refused),
    ("..",                      Refused),
    ("api%2eexample.com",       Refused),
    ("[api.example.com]",       Refused),
];

/// A request of a user in one spelling.
fn step(path: &str, host: &str, user: usize) -> String {
    let attributes =
        format!("{{method: GET, path: '{path}', host: '{host}', header.x-user: u{user}}}");
    let expect = "{allowed: true, rule: null, limit: null, remaining: null}";
    format!("  - {{step: '{path} {host}', attributes: {attributes}, expect: {expect}}}\n")
}

#[track_caller]
fn play(front_end: StoryFrontEnd) {
    let kind = front_end.kind();
    let mut text = SCENARIO.to_owned();
    let mut ends = Vec::new();
    let by_path = PATHS.map(|(path, ends)| {
        let end = ends[kind as usize];
        (("/v1/search/foo", path), ("localhost", "localhost"), end)
    });
    let by_host = HOSTS.map(|(host, end)| (("/hosts", "/hosts"), ("api.example.com", host), end));
    for (user, (paths, hosts, end)) in by_path.into_iter().chain(by_host).enumerate() {
        for _ in 0..2 {
            text += &step(paths.0, hosts.0, user);
        }
        text += &step(paths.1, hosts.1, user);
        ends.push(end);
    }
    let scenario = Scenario::of(&text);
    let mut asking = front_end.open(&scenario);
    for (steps, end) in scenario.story.chunks(3).zip(ends) {
        let seen: Vec<_> = steps.iter().map(|step| asking.ask(step)).collect();
        assert!(
            seen[0].allowed && seen[1].allowed,
            "{front_end:?}: {seen:?}"
        );
        let third = &seen[2];
        let found = match (third.is_refused, third.allowed) {
            (true, _) => Refused,
            (false, true) => Other,
            (false, false) => Counted,
        };
        // Envoy lets pass what it gets an error for, so there a refusal is a denial.
        let end = match end {
            Refused if matches!(front_end, StoryFrontEnd::Grpc) => Counted,
            end => end,
        };
        assert_eq!(found, end, "{front_end:?}: {}: {third:?}", steps[2].name);
    }
}

#[test]
fn spellings_through_the_library() {
    play(StoryFrontEnd::Library);
}

#[test]
fn spellings_through_the_middleware() {
    play(StoryFrontEnd::Middleware);
}

#[test]
fn spellings_through_http() {
    play(StoryFrontEnd::Http);
}

#[test]
fn spellings_through_the_protocol_of_redis() {
    play(StoryFrontEnd::Resp);
}

#[test]
fn spellings_through_grpc() {
    play(StoryFrontEnd::Grpc);
}

#[test]
fn spellings_through_forward_auth() {
    play(StoryFrontEnd::Authorize);
}

#[test]
fn spellings_through_the_gateway() {
    play(StoryFrontEnd::Gateway);
}
