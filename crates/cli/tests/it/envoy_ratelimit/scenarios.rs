//! What Envoy Gateway's own tests expect of its rate limits: the policies, the requests, and what becomes of each.

use super::policy::Selector::{
    self, AnyAddress, Distinct, EachAddress, Header, Methods, NoHeader, Outside, Path, Query,
};
use super::policy::{Asked, PolicyListener, PolicyRoute, PolicyRule, route, rule};

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// It is forwarded, by a limit of which so much is left.
    Allowed { limit: u32, left: u32 },
    /// It is answered with 429.
    Denied,
    /// No limit is about it.
    Free,
}

use Expected::{Allowed, Denied, Free};

/// The same request, several times.
pub(super) struct Step {
    pub(super) times: u32,
    /// The number of the listener.
    pub(super) listener: usize,
    pub(super) asked: Asked,
    /// What becomes of the last of them. Before it one more is left each time.
    pub(super) last: Expected,
}

/// A query of Prometheus and its result: the suffix of the name, the label `key2`.
pub(super) struct Series(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) u32,
);

pub(super) struct Scenario {
    /// The name of the test of Envoy Gateway.
    pub(super) name: &'static str,
    pub(super) listeners: Vec<PolicyListener>,
    /// Whether Envoy writes the headers `x-ratelimit-*`.
    pub(super) has_headers: bool,
    pub(super) steps: Vec<Step>,
    pub(super) series: Vec<Series>,
}

fn scenario(name: &'static str, gateway: &'static str, routes: Vec<PolicyRoute>) -> Scenario {
    Scenario {
        name,
        listeners: vec![PolicyListener {
            name: gateway,
            routes,
        }],
        has_headers: true,
        steps: Vec::new(),
        series: Vec::new(),
    }
}

impl Scenario {
    fn on(mut self, listener: usize, times: u32, asked: Asked, last: Expected) -> Self {
        self.steps.push(Step {
            times,
            listener,
            asked,
            last,
        });
        self
    }

    fn then(self, times: u32, asked: Asked, last: Expected) -> Self {
        self.on(0, times, asked, last)
    }

    /// Three requests of a limit of three, and one too many.
    fn three_and_no_more(self, asked: Asked) -> Self {
        self.then(3, asked, Allowed { limit: 3, left: 0 })
            .then(1, asked, Denied)
    }

    fn counting(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }
}

const fn get(target: &'static str) -> Asked {
    ask("GET", target, &[])
}

const fn ask(
    method: &'static str,
    target: &'static str,
    headers: &'static [(&'static str, &'static str)],
) -> Asked {
    Asked {
        method,
        target,
        headers,
    }
}

/// A policy with one rule of three an hour, for one route.
fn three(prefix: &'static str, selectors: &[Selector]) -> Vec<PolicyRoute> {
    vec![route(prefix, &[rule(selectors, 3)])]
}

const ONE: &[(&str, &str)] = &[("x-user-id", "one")];
const TWO: &[(&str, &str)] = &[("x-user-id", "two")];
const ONE_OF_ACME: &[(&str, &str)] = &[("x-user-id", "one"), ("x-user-org", "acme")];
const OF_ACME: [Selector; 2] = [Header("x-user-id", "one"), Header("x-user-org", "acme")];

pub(super) fn all() -> Vec<Scenario> {
    let all = of_matches().into_iter().chain(of_addresses());
    let all = all.chain(of_listeners_and_sharing());
    all.chain(of_answers_and_costs()).collect()
}

fn of_matches() -> [Scenario; 8] {
    let matched = ask("GET", "/get", ONE_OF_ACME);
    [
        scenario("RateLimitHeaderMatch", "headers", three("/get", &OF_ACME))
            .three_and_no_more(matched)
            .then(4, ask("GET", "/get", ONE), Free),
        scenario(
            "RateLimitMethodMatch",
            "methods",
            three("/get", &[Methods(&["POST", "DELETE"])]),
        )
        .three_and_no_more(ask("POST", "/get", &[]))
        .then(1, ask("DELETE", "/get", &[]), Denied)
        .then(4, get("/get"), Free),
        scenario(
            "RateLimitPathMatch",
            "paths",
            three("/get", &[Path("/get/specific-path")]),
        )
        .three_and_no_more(get("/get/specific-path"))
        .then(1, get("/get/specific-path/subpath"), Denied)
        .then(4, get("/get/no-specific-path"), Free),
        scenario(
            "GlobalRateLimitHeaderInvertMatch",
            "inverted",
            three(
                "/get",
                &[Distinct("x-user-name"), NoHeader("x-user-name", "admin")],
            ),
        )
        .three_and_no_more(ask("GET", "/get", &[("x-user-name", "username")]))
        .then(4, ask("GET", "/get", &[("x-user-name", "admin")]), Free),
        scenario(
            "RateLimitBasedJwtClaims",
            "claims",
            three("/foo", &[Distinct("x-name"), Header("x-name", "John Doe")]),
        )
        .three_and_no_more(ask("GET", "/foo", &[("x-name", "John Doe")]))
        .then(4, ask("GET", "/foo", &[("x-name", "Tom")]), Free)
        .counting(Series("over_limit", "rule-0-match-0", 1)),
        scenario(
            "RateLimitQueryParameters",
            "queries",
            three("/get", &[Query("user", "alice")]),
        )
        .three_and_no_more(get("/get?user=alice"))
        .then(4, get("/get?name=bob"), Free)
        .counting(Series("over_limit", "rule-0-match-0_rule-0-match-0", 1)),
        // Each user has a counter, and some a limit of their own.
        scenario(
            "DistinctHeaders",
            "users",
            three("/", &[Distinct("x-user-id")]),
        )
        .three_and_no_more(ask("GET", "/", ONE))
        .three_and_no_more(ask("GET", "/", TWO))
        .then(2, get("/"), Free)
        .counting(Series("over_limit", "rule-0-match-0", 2)),
        scenario(
            "DistinctHeaderOverrides",
            "overrides",
            vec![route(
                "/",
                &[rule(
                    &[Distinct("x-user-id"), Methods(&["GET"]), Path("/admin")],
                    3,
                )
                .overriding(&[("one", 5)])],
            )],
        )
        .then(5, ask("GET", "/admin", ONE), Allowed { limit: 5, left: 0 })
        .then(1, ask("GET", "/admin", ONE), Denied)
        .three_and_no_more(ask("GET", "/admin/users", TWO))
        .then(1, ask("POST", "/admin", ONE), Free),
    ]
}

fn of_addresses() -> [Scenario; 4] {
    let cidr = || Series("over_limit", "masked_remote_address_0_0_0_0/0", 1);
    let both = [OF_ACME[0], OF_ACME[1], AnyAddress];
    [
        scenario("RateLimitCIDRMatch", "cidr", three("/", &[AnyAddress]))
            .three_and_no_more(get("/"))
            .counting(cidr()),
        scenario(
            "RateLimitHeadersAndCIDRMatch",
            "headers-and-cidr",
            three("/get", &both),
        )
        .three_and_no_more(ask("GET", "/get", ONE_OF_ACME))
        .then(4, ask("GET", "/get", ONE), Free)
        .then(4, get("/get"), Free),
        scenario("DistinctCIDR", "each-address", three("/", &[EachAddress]))
            .three_and_no_more(get("/"))
            .counting(cidr()),
        scenario(
            "InvertedCIDR",
            "outside",
            three("/", &[Outside("192.168.0.0/24")]),
        )
        .three_and_no_more(get("/"))
        .counting(Series(
            "over_limit",
            "masked_remote_address_invert_192_168_0_0/24",
            1,
        )),
    ]
}

fn of_listeners_and_sharing() -> [Scenario; 4] {
    let shared = |selectors: &[Selector]| {
        let rule = rule(selectors, 3).shared();
        let rules = std::slice::from_ref(&rule);
        vec![route("/foo", rules), route("/bar", rules)]
    };
    let sharing = |scenario: Scenario, headers| {
        let [one, other] = ["/foo", "/bar"].map(|target| ask("GET", target, headers));
        scenario
            .then(2, one, Allowed { limit: 3, left: 1 })
            .then(1, other, Allowed { limit: 3, left: 0 })
            .then(1, other, Denied)
    };
    let mut two_listeners = scenario(
        "RateLimitMultipleListeners",
        "listener-80",
        three("/", &[AnyAddress]),
    );
    two_listeners.listeners.push(PolicyListener {
        name: "listener-8080",
        routes: three("/", &[AnyAddress]),
    });
    let two_listeners = [0, 1]
        .into_iter()
        .fold(two_listeners, |scenario, listener| {
            scenario
                .on(listener, 3, get("/"), Allowed { limit: 3, left: 0 })
                .on(listener, 1, get("/"), Denied)
        });
    [
        two_listeners,
        sharing(
            scenario(
                "RateLimitGlobalSharedCidrMatch",
                "shared-cidr",
                shared(&[AnyAddress]),
            ),
            &[],
        )
        .counting(Series("over_limit", "masked_remote_address_0_0_0_0/0", 1)),
        sharing(
            scenario(
                "RateLimitGlobalSharedGatewayHeaderMatch",
                "shared-header",
                shared(&[Header("x-user-id", "one")]),
            ),
            ONE,
        )
        .counting(Series("over_limit", "rule-0-match-0_rule-0-match-0", 1)),
        merged(),
    ]
}

/// Policies of a gateway and of its routes, put together: some rules are shared, others are not, and one is about all requests.
fn merged() -> Scenario {
    const THREE: &[(&str, &str)] = &[("x-user-id", "three")];
    const FOUR: &[(&str, &str)] = &[("x-user-id", "four")];
    let user = |name| rule(&[Header("x-user-id", name)], 3);
    let rules: [PolicyRule; 4] = [
        user("one").shared(),
        user("two"),
        user("three").shared(),
        user("four"),
    ];
    let mut scenario = scenario(
        "RateLimitGlobalMergeTest",
        "merged",
        vec![route("/foo", &rules), route("/bar", &rules)],
    );
    for headers in [ONE, THREE] {
        let [one, other] = ["/foo", "/bar"].map(|target| ask("GET", target, headers));
        scenario = scenario
            .then(2, other, Allowed { limit: 3, left: 1 })
            .then(1, one, Allowed { limit: 3, left: 0 })
            .then(1, one, Denied);
    }
    for headers in [TWO, FOUR] {
        for target in ["/foo", "/bar"] {
            scenario = scenario.three_and_no_more(ask("GET", target, headers));
        }
    }
    scenario
}

fn of_answers_and_costs() -> [Scenario; 4] {
    let limit = 21;
    let mut without_headers = scenario(
        "RateLimitHeadersDisabled",
        "no-headers",
        three("/get", &OF_ACME),
    )
    .three_and_no_more(ask("GET", "/get", ONE_OF_ACME));
    without_headers.has_headers = false;
    let one = ask("GET", "/get", ONE);
    [
        without_headers,
        scenario(
            "RateLimitGlobalShadowModeTest",
            "shadow",
            vec![route("/shadow", &[rule(&[], 3).in_shadow()])],
        )
        .then(3, get("/shadow"), Allowed { limit: 3, left: 0 })
        // Nothing is left, and still they pass.
        .then(1, get("/shadow"), Allowed { limit: 3, left: 0 })
        .then(1, get("/shadow"), Allowed { limit: 3, left: 0 })
        .counting(Series("shadow_mode", "rule-0-match--1_rule-0-match--1", 2)),
        // A response costs 10, a request nothing: 21, 11, 1, and then nothing is left.
        scenario(
            "UsageRateLimit",
            "usage",
            vec![route(
                "/get",
                &[rule(&[Header("x-user-id", "one")], limit).costing(0, 10)],
            )],
        )
        .then(1, one, Allowed { limit, left: 21 })
        .then(1, one, Allowed { limit, left: 11 })
        .then(1, one, Allowed { limit, left: 1 })
        .then(1, one, Denied)
        .counting(Series("total_hits", "rule-0-match-0_rule-0-match-0", 30)),
        // The limit comes from the metadata of the request, in place of the one in the policy.
        scenario(
            "LimitFromMetadata",
            "from-metadata",
            vec![route(
                "/get",
                &[rule(&[Distinct("x-user-id")], 1).bringing(2)],
            )],
        )
        .then(2, one, Allowed { limit: 2, left: 0 })
        .then(1, one, Denied),
    ]
}
