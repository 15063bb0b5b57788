//! The scenarios as calls: what Envoy would send for each request, with counters in memory and in Redis.

use tidegate_server::grpc_messages::rate_limit::{
    DescriptorEntry, DescriptorStatus, LimitCode, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, UInt64Value, Unit,
};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::HttpClient;

use super::deployed::{Caller, Deployed, local};
use super::policy::{Asked, PolicyListener, RouteRule};
use super::scenarios::{Expected, Scenario, all};
use super::{HOUR, within_a_window};

#[test]
fn each_scenario_of_envoy_gateway_holds_in_memory() {
    within_a_window(HOUR, || play_all(None));
}

#[test]
fn each_scenario_of_envoy_gateway_holds_over_redis() {
    within_a_window(HOUR, || play_all(Some(&RedisServer::start())));
}

fn play_all(redis: Option<&RedisServer>) {
    let scenarios = all();
    let listeners = scenarios.iter().flat_map(|scenario| &scenario.listeners);
    let domains: Vec<_> = listeners.flat_map(PolicyListener::limits).collect();
    let deployed = Deployed::start(redis.map(RedisServer::address), &domains);
    let mut http = HttpClient::to(local(deployed.server.address));
    let health = http.ask("GET /healthcheck", "").with_status(200);
    assert_eq!(health.body, "OK");
    let mut caller = deployed.caller();
    for scenario in &scenarios {
        play(scenario, &mut caller);
        assert_series(scenario, &deployed);
    }
    assert_listed(&deployed.debug("/rlconfig"), &scenarios);
}

/// The queries of Prometheus that the scenario makes.
pub(super) fn assert_series(scenario: &Scenario, deployed: &Deployed) {
    for series in &scenario.series {
        let name = format!("ratelimit_service_rate_limit_{}", series.0);
        let domain = &scenario.listeners[0].rules(0)[0].domain;
        let found = deployed.series(&name, domain, series.1);
        assert_eq!(
            found,
            Some(f64::from(series.2)),
            "{}: {name}",
            scenario.name
        );
    }
}

fn play(scenario: &Scenario, caller: &mut Caller) {
    for step in &scenario.steps {
        let rules = &scenario.listeners[step.listener];
        let rules = rules.rules(rules.route_of(&step.asked));
        for time in (0..step.times).rev() {
            let said = format!("{}: {:?}", scenario.name, step.last);
            let answer = request(caller, &rules, &step.asked);
            match step.last {
                Expected::Free => assert!(answer.tightest.is_none() && answer.is_allowed, "{said}"),
                Expected::Denied => assert!(!answer.is_allowed, "{said}"),
                Expected::Allowed { limit, left } => {
                    let status = answer.tightest.unwrap();
                    let current = status.current_limit.as_ref().unwrap();
                    assert!(answer.is_allowed, "{said}");
                    assert_eq!(
                        (current.requests_per_unit, status.limit_remaining),
                        (limit, left + time),
                        "{said}"
                    );
                    assert_eq!((current.unit(), current.name.as_str()), (Unit::Hour, ""));
                    let reset = status.duration_until_reset.unwrap();
                    assert_eq!(reset.nanos, 0, "Envoy cuts what is below a second");
                    assert!((1..=3600).contains(&reset.seconds), "{reset:?}");
                }
            }
        }
    }
}

/// What a request got.
struct Answer {
    is_allowed: bool,
    /// The status with the least left that has a limit.
    tightest: Option<DescriptorStatus>,
}

/// Makes the calls of a request: one for each domain, until one denies it, and one more for what its response costs.
fn request(caller: &mut Caller, rules: &[RouteRule<'_>], asked: &Asked) -> Answer {
    let mut domains: Vec<&str> = rules.iter().map(|rule| rule.domain.as_str()).collect();
    domains.sort_unstable();
    domains.dedup();
    let mut answer = Answer {
        is_allowed: true,
        tightest: None,
    };
    for at_end in [false, true] {
        for domain in &domains {
            let of_domain = rules.iter().filter(|rule| rule.domain == **domain);
            let descriptors: Vec<_> = of_domain
                .filter_map(|rule| descriptor(rule, asked, at_end))
                .collect();
            if descriptors.is_empty() || !answer.is_allowed {
                continue;
            }
            let call = RateLimitRequest {
                domain: (*domain).to_owned(),
                descriptors,
                hits_addend: 0,
            };
            let reply = caller.call(call).unwrap();
            assert!(
                reply.response_headers_to_add.is_empty(),
                "Envoy writes them"
            );
            if at_end {
                continue;
            }
            answer.is_allowed = reply.overall_code == i32::from(LimitCode::Ok);
            let limited = reply.statuses.into_iter();
            let limited = limited.filter(|status| status.current_limit.is_some());
            let least = limited.min_by_key(|status| status.limit_remaining);
            answer.tightest = least.or(answer.tightest);
        }
    }
    answer
}

/// What Envoy sends of a rule for a request, or at the end of its response.
fn descriptor(rule: &RouteRule<'_>, asked: &Asked, at_end: bool) -> Option<RateLimitDescriptor> {
    let costs = rule.rule.costs;
    let cost = costs.map(|(request, response)| if at_end { response } else { request });
    if at_end && cost.is_none() {
        return None;
    }
    let entries = rule.sent(asked)?;
    let limit = rule
        .rule
        .brought
        .map(|requests_per_unit| RateLimitOverride {
            requests_per_unit,
            unit: Unit::Hour.into(),
        });
    Some(RateLimitDescriptor {
        entries: entries
            .iter()
            .map(|(key, value)| entry(key, value))
            .collect(),
        limit,
        hits_addend: cost.map(|cost| UInt64Value { value: cost.into() }),
        is_negative_hits: false,
    })
}

fn entry(key: &str, value: &str) -> DescriptorEntry {
    DescriptorEntry {
        key: key.to_owned(),
        value: value.to_owned().into(),
    }
}

/// A call with one descriptor, which may have a cost of its own.
pub(super) fn one(domain: &str, entries: &[(&str, &str)], cost: Option<u64>) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: entries
                .iter()
                .map(|(key, value)| entry(key, value))
                .collect(),
            hits_addend: cost.map(|value| UInt64Value { value }),
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// `egctl config envoy-ratelimit` reads this page: a line for each limit, sorted.
fn assert_listed(page: &str, scenarios: &[Scenario]) {
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines.is_sorted(), "{page}");
    let cidr = "gateway-conformance-infra/cidr/http.\
        httproute/gateway-conformance-infra/cidr/rule/0/match/0/*_httproute/gateway-conformance-infra/cidr/rule/0/match/0/*.\
        masked_remote_address_0.0.0.0/0: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false";
    assert!(lines.contains(&cidr), "{page}");
    let users =
        "rule-0-match-0: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false";
    assert!(lines.iter().any(|line| line.ends_with(users)), "{page}");
    let listeners = scenarios.iter().flat_map(|scenario| &scenario.listeners);
    for domain in listeners.flat_map(PolicyListener::limits) {
        let begins = format!("{}.", domain.domain);
        let found = lines.iter().filter(|line| line.starts_with(&begins));
        let below = domain.descriptors.iter();
        let expected: usize = below.map(|first| first.descriptors.len()).sum();
        assert_eq!(found.count(), expected, "{begins}");
    }
}
