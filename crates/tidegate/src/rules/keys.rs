//! Every key that a file of rules may have, with the values that it may have: a table for each map. To add a
//! key, add its row here and read it with the rest of its map; suggestions, the JSON Schema and the API's
//! description follow from the row.

use tidegate_core::limit::{MAX_COUNT, MAX_SLOTS};

use super::read_adaptive;
use super::read_budget::UNSETTLED;
use super::read_limit::{ALGORITHMS, ANCHORS};
use super::read_rule::{MISSING, MODES, ON_STORE_FAILURE, ON_STORE_FAILURE_OF_DESCRIPTOR, SYNCS};
use crate::internal::document::{Key, Kind, words};

const SPAN: Kind = Kind::Named("Span", &Kind::Pattern(r"^\s*[0-9]+\s*[A-Za-z]+\s*$"));
const COUNT: Kind = Kind::Whole(1, MAX_COUNT);
/// With its offset, as in `2027-01-01T00:00:00Z`.
const TIME: Kind = Kind::Pattern(r"^[+0-9][0-9-]*[Tt ][0-9:.,]+([Zz]|[+-][0-9:.,]+)(\[.*\])?$");
const NAME: &str = "^[!-~]{1,128}$";
const ATTRIBUTE: Kind = Kind::Named("AttributeName", &Kind::Text(NAME));
const MATCHES: Kind = Kind::Named("Match", &Kind::Map(&MATCH));

const RATE_TEXT: Kind = Kind::Pattern(
    r"^\s*[0-9]+\s*((/|[Pp][Ee][Rr])\s*([0-9]+\s*)?[A-Za-z]+\s*)?([Bb][Uu][Rr][Ss][Tt]\s*[0-9]+\s*)?([;,|]\s*[0-9]+\s*((/|[Pp][Ee][Rr])\s*([0-9]+\s*)?[A-Za-z]+\s*)?([Bb][Uu][Rr][Ss][Tt]\s*[0-9]+\s*)?)*$",
);
const ONE_RATE: Kind = Kind::Any(&[RATE_TEXT, COUNT, Kind::Named("Rate", &Kind::Map(&RATE))]);
const RATES: Kind = Kind::Named("Rates", &Kind::OneOrMore(1, &ONE_RATE));
const LIMIT: Kind = Kind::Named(
    "Limit",
    &Kind::Any(&[Kind::Words(&["unlimited", "blocked"]), RATES]),
);

// How a limit is counted, in a rule and in the block `tidegate` of a descriptor.
#[rustfmt::skip]
const ALGORITHM: Key = Key::new("algorithm", Kind::Words(const { &words(&ALGORITHMS) }), "how requests are counted; without it each limit by `token_bucket`, or by `fixed_window` if its window is a day or longer and it has no burst").like("sliding_window_counter");
#[rustfmt::skip]
const ANCHOR: Key = Key::new("anchor", Kind::Words(const { &words(&ANCHORS) }), "when a window starts: by the clock, or with the first request").or("clock").like("first_request").needs(&["fixed_window"]);
#[rustfmt::skip]
const SLOTS: Key = Key::new("slots", Kind::Whole(1, MAX_SLOTS as u64), "how many parts a window has").like("60").needs(&["sliding_window_slots"]);
#[rustfmt::skip]
const STRICT: Key = Key::new("strict", Kind::Flag, "whether no interval as long as the window ever admits more than the limit").or("false").like("true").needs(&["sliding_window_slots"]);
#[rustfmt::skip]
const SHAPE: Key = Key::new("shape", Kind::Flag, "whether an admitted request gets a delay, so that requests are spaced evenly").or("true").like("false").needs(&["leaky_bucket"]);
#[rustfmt::skip]
const MAX_DELAY: Key = Key::new("max_delay", SPAN, "requests that would be allowed within this time are admitted with a delay").or("0s").like("500ms").needs(&["token_bucket"]);
#[rustfmt::skip]
const LEASE_TTL: Key = Key::new("lease_ttl", SPAN, "how long a request counts as being in progress if its end is not reported").or("60s").like("30s").needs(&["concurrency"]);
#[rustfmt::skip]
const FAILURE: Key = Key::new("on_store_failure", Kind::Words(const { &words(&ON_STORE_FAILURE) }), "what happens to requests while the store cannot answer").or("local").like("deny");
#[rustfmt::skip]
const SYNC: Key = Key::new("sync", Kind::Words(const { &words(&SYNCS) }), "whether the store decides each request, or servers take batches from it").or("exact").like("leased");

/// A file of rules.
#[rustfmt::skip]
pub(super) static RULE_SET: [Key; 2] = [
    Key::new("exempt", Kind::List(0, &MATCHES), "no rule applies to requests for which one of these holds: added to the `except` of each rule").like(r#"[{"path": ["/healthz"]}]"#),
    Key::new("rules", Kind::List(0, &Kind::Named("Rule", &Kind::Map(&RULE))), "the rules, of which every one that matches a request applies").required(),
];

#[rustfmt::skip]
const TIERS: Key = Key::new("tiers", Kind::MapOf(".", &LIMIT), "limits by the attribute `tier`").like(r#"{"pro": "1000/minute"}"#);
#[rustfmt::skip]
const OVERRIDES: Key = Key::new("overrides", Kind::MapOf(".", &LIMIT), "limits by the value of the first attribute of `per`, or its hash `sha256:...`; an address or a network if that is `ip`").like(r#"{"u1": "unlimited"}"#);

/// A rule.
#[rustfmt::skip]
pub(super) static RULE: [Key; 30] = [
    Key::new("id", Kind::Named("RuleId", &Kind::Text("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")), "its name, unique; not `history`, `rollback` or `diff`").required().like("per-user"),
    Key::new("description", Kind::Text(""), "text for people").like("for the mobile app"),
    Key::new("match", MATCHES, "which requests it is about: all parts that are given must hold; without it every request").like(r#"{"path": ["/v1/**"]}"#),
    Key::new("except", Kind::List(0, &MATCHES), "it does not apply to requests for which one of these holds").like(r#"[{"path": ["/healthz"]}]"#),
    Key::new("per", Kind::OneOrMore(0, &ATTRIBUTE), "the attributes that make the counter; `[]` is one counter for all").required().like(r#"["user_id"]"#),
    Key::new("missing", Kind::Words(const { &words(&MISSING) }), "what happens to a request without the attributes of `per`: the rule is skipped, they share one counter, or it is denied").or("skip").like("deny"),
    Key::new("limit", LIMIT, "what is allowed; with `adaptive`, where the limit begins").filled().like("100/minute burst 20"),
    TIERS, OVERRIDES,
    Key::new("candidate", Kind::Any(&[LIMIT, Kind::Named("Candidate", &Kind::Map(&CANDIDATE))]), "a limit that is tried next to this one: it has its own counters, and decides only for the keys of `rollout`; not with `adaptive`").like("50/minute"),
    Key::new("rollout", Kind::Pattern(r"^(100(\.0{1,2})?|0?[0-9]{1,2}(\.[0-9]{1,2})?)%$"), "the share of keys that the candidate decides for, or the rule if it has none; the others only count").like("10%"),
    Key::new("unit", Kind::Named("Unit", &Kind::Text("^[a-z][a-z0-9_]{0,31}$")), "what the limits count; `concurrency` and `adaptive` count requests").or("requests").like("tokens"),
    Key::new("cost", Kind::Any(&[COUNT, Kind::Map(&COST)]), "how much a request takes, or the attribute that says so; multiplied by the request's own cost").or("1").like(r#"{"attribute": "bytes"}"#),
    Key::new("mode", Kind::Words(const { &words(&MODES) }), "`shadow` only counts what it would have decided").or("enforce").like("shadow"),
    FAILURE,
    Key::new("denied", Kind::Named("Denied", &Kind::Map(&DENIED)), "what a client that it denies gets from the gateway, forward-auth and the middleware").like(r#"{"status": 403, "title": "Not for {rule}"}"#),
    SYNC,
    Key::new("settle", Kind::Flag, "whether a cost that was spent already and does not fit is taken as far as it goes; not with `concurrency`").or("false").like("true"),
    Key::new("unsettled", Kind::Words(const { &words(&UNSETTLED) }), "what becomes of a reservation that is not settled before it expires; `give_back` not with `sync: leased`").or("keep").like("give_back"),
    Key::new("warn_at", Kind::Whole(1, 99), "the percentage of a limit from which its use is logged and counted").like("80"),
    Key::new("starts_at", TIME, "when it begins to apply, with a time zone; before `expires_at`").like("2026-12-01T00:00:00Z"),
    Key::new("expires_at", TIME, "when it ends, with a time zone").like("2027-01-01T00:00:00Z"),
    ALGORITHM, ANCHOR, SLOTS, STRICT, SHAPE, MAX_DELAY, LEASE_TTL,
    Key::new("adaptive", Kind::Named("Adaptive", &Kind::Map(&ADAPTIVE)), "between which bounds the limit follows the load").like(r#"{"min": "10/second", "max": "500/second"}"#).needs(&read_adaptive::ALGORITHMS),
];

/// The long form of `candidate`: what it replaces of its rule.
#[rustfmt::skip]
pub(super) static CANDIDATE: [Key; 10] = [
    Key::new("limit", LIMIT, "what is allowed").filled().like("50/minute"),
    TIERS, OVERRIDES,
    ALGORITHM, ANCHOR, SLOTS, STRICT, SHAPE, MAX_DELAY, LEASE_TTL,
];

/// `denied`, in a rule and in the settings of the server.
#[doc(hidden)]
#[rustfmt::skip]
pub static DENIED: [Key; 4] = [
    Key::new("status", Kind::Any(&[Kind::Whole(400, 499), Kind::Whole(503, 503)]), "the status, in place of that of the reason").like("403"),
    Key::new("title", Kind::Text(""), "the title of the problem document; it may have `{rule}`, `{limit}` and `{retry_after}`").like("Too many requests"),
    Key::new("detail", Kind::Text(""), "its detail, in the same way").like("try again in {retry_after} seconds"),
    Key::new("headers", Kind::MapOf("^[!-~]+$", &Kind::Text("")), "more headers, at most 16, with values in the same way").like(r#"{"x-help": "https://example.com/limits"}"#),
];

/// `match`, and an item of `except`.
#[rustfmt::skip]
pub(super) static MATCH: [Key; 6] = [
    Key::new("path", Kind::OneOrMore(1, &Kind::Pattern("^/")), "paths; `*` is one segment, `**` at the end is the rest").filled().like("/v1/**"),
    Key::new("method", Kind::OneOrMore(1, &Kind::Text("^[A-Za-z-]+$")), "methods").filled().like("POST"),
    Key::new("host", Kind::OneOrMore(1, &Kind::Text("")), "hosts, without a port; `*.` is any name below").filled().like("*.example.org"),
    Key::new("ip", Kind::OneOrMore(1, &Kind::Pattern("[.:]")), "addresses and networks").filled().like("10.0.0.0/8"),
    Key::new("attributes", Kind::MapOf(NAME, &Kind::OneOrMore(1, &Kind::Text(""))), "attributes, each with one of these values").filled().like(r#"{"plan": ["free", "trial"]}"#),
    Key::new("when", Kind::Text(""), "a condition in CEL on `attributes` and `cost`").filled().like(r#""region" in attributes && attributes["region"] == "eu""#),
];

/// The long form of a limit.
#[rustfmt::skip]
pub(super) static RATE: [Key; 3] = [
    Key::new("requests", COUNT, "how many requests").required().like("100"),
    Key::new("window", Kind::Pattern(r"^\s*([0-9]+\s*)?[A-Za-z]+\s*$"), "in which time; none with `concurrency`").like("60s"),
    Key::new("burst", COUNT, "how many at once").like("20"),
];

/// A `cost` that requests bring.
#[rustfmt::skip]
pub(super) static COST: [Key; 1] = [
    Key::new("attribute", ATTRIBUTE, "the attribute that says how much a request takes").required().like("bytes"),
];

#[rustfmt::skip]
pub(super) static ADAPTIVE: [Key; 3] = [
    Key::new("min", RATES, "the lowest limit: a number with `concurrency`, otherwise a rate").required().like("10/second"),
    Key::new("max", RATES, "the highest limit, over the same window; its burst is the capacity of the bucket").required().like("500/second"),
    Key::new("target", SPAN, "the latency that the typical request may have; without it the limit follows how latency changes with load").like("200ms"),
];

/// A document in the form of envoyproxy/ratelimit.
#[rustfmt::skip]
pub(super) static DOMAIN: [Key; 2] = [
    Key::new("domain", Kind::Text("."), "the domain that Envoy's filter names").required().like("edge"),
    Key::new("descriptors", Kind::List(0, &Kind::Named("Descriptor", &Kind::Map(&DESCRIPTOR))), "the entries of a request that come first"),
];

/// True and false as YAML 1.1 spells them.
pub(super) const YES: [&str; 11] = [
    "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y",
];
pub(super) const NO: [&str; 11] = [
    "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N",
];
const YES_OR_NO: Kind = Kind::Named(
    "YesOrNo",
    &Kind::Any(&[Kind::Flag, Kind::Words(&YES), Kind::Words(&NO)]),
);

#[rustfmt::skip]
pub(super) static DESCRIPTOR: [Key; 11] = [
    Key::new("key", Kind::Text("."), "the key of an entry").required().like("path"),
    Key::new("value", Kind::Text(""), "its value, in which `*` stands for anything; without it each value has its own counter").like("/v1/*"),
    Key::new("rate_limit", Kind::Named("RateLimit", &Kind::Map(&RATE_LIMIT)), "the limit of requests whose entries lead here"),
    Key::new("descriptors", Kind::List(0, &Kind::Again("Descriptor")), "the entries of a request that come next"),
    Key::new("tidegate", Kind::Named("Tidegate", &Kind::Map(&OWN)), "how the limit is counted, which only Tidegate reads"),
    Key::new("share_threshold", YES_OR_NO, "whether values that fit the `*` share one counter").or("false"),
    Key::new("shadow_mode", YES_OR_NO, "whether it only counts what it would have decided").or("false"),
    Key::new("quota_mode", YES_OR_NO, "whether the limit is a quota: a request is denied only if it is over all of its quotas").or("false"),
    Key::new("metadata", Kind::MapOf("", &Kind::Free), "what is reported with a decision"),
    Key::new("detailed_metric", YES_OR_NO, "whether all values of a request are in the names of the limit's stats").or("false"),
    Key::new("value_to_metric", YES_OR_NO, "whether the value of a request is in the names of stats of the limits from here on").or("false"),
];

#[rustfmt::skip]
pub(super) static RATE_LIMIT: [Key; 5] = [
    Key::new("unit", Kind::Any(&[Kind::Words(&UNIT_NAMES), Kind::Pattern("^[A-Za-z]+$")]), "the unit of time").like("minute"),
    Key::new("requests_per_unit", Kind::Any(&[Kind::Whole(0, u32::MAX as u64), Kind::Pattern("^[+]?[0-9][0-9A-Fa-fobx_]*$")]), "how many requests; 0 denies all").like("100"),
    Key::new("unlimited", YES_OR_NO, "whether there is no limit").or("false"),
    Key::new("name", Kind::Text(""), "the name by which others replace it"),
    Key::new("replaces", Kind::List(0, &Kind::Named("Replaced", &Kind::Map(&REPLACED))), "the limits that do not apply where this one does"),
];
const UNIT_NAMES: [&str; 7] = words(&super::descriptors::UNITS);

#[rustfmt::skip]
pub(super) static REPLACED: [Key; 1] = [
    Key::new("name", Kind::Text("."), "the name of the other limit").required(),
];

/// The block `tidegate` of a descriptor.
#[rustfmt::skip]
pub(super) static OWN: [Key; 10] = [
    ALGORITHM, ANCHOR, SLOTS, STRICT, SHAPE, MAX_DELAY, LEASE_TTL,
    Key::new("burst", COUNT, "how many at once").like("20").needs(&["token_bucket", "leaky_bucket"]),
    Key::new("on_store_failure", Kind::Words(const { &words(&ON_STORE_FAILURE_OF_DESCRIPTOR) }), "what happens to requests while the store cannot answer; `error` fails the call, and Envoy's `failure_mode_deny` decides").or("local").like("error"),
    SYNC,
];

/// An item of an overlay.
#[rustfmt::skip]
pub(super) static OVERLAY: [Key; 2] = [
    Key::new("path", Kind::Text("."), "the path of the limits that are meant, in which `*` stands for anything").required().like("infra/gw/http.*"),
    Key::new("tidegate", Kind::Map(&OWN), "how they are counted").required(),
];

/// Whether a key with this name, in any map, may have a value for which this holds.
pub(super) fn any_may_be(name: &str, is: fn(&Kind) -> bool) -> bool {
    let tables: [&[Key]; 10] = [
        &RULE,
        &CANDIDATE,
        &DENIED,
        &RATE,
        &COST,
        &ADAPTIVE,
        &DOMAIN,
        &DESCRIPTOR,
        &RATE_LIMIT,
        &OWN,
    ];
    let mut rows = tables.into_iter().flatten();
    rows.any(|row| row.name == name && row.kind.may_be(is))
}
