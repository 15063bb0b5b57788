//! Budgets of tokens as the AI Gateway has them: a request is counted before it is forwarded, and its tokens when its response
//! has ended. Their limits are quotas of one domain.

use tidegate_server::grpc_messages::rate_limit::{LimitCode, Unit};
use tidegate_server::grpc_messages::rate_limit_config::{ConfiguredDescriptor, ConfiguredDomain};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_xds::{descriptor, domain, limited, per};

use super::called::one;
use super::deployed::{Caller, Deployed};
use super::{HOUR, within_a_window};

pub(super) const DOMAIN: &str = "ai-gateway-quota";
pub(super) const BACKEND: &str = "default/testupstream";
/// The largest budget that there is.
const MOST: u32 = u32::MAX;

fn quota(key: &str, value: &str, tokens: u32) -> ConfiguredDescriptor {
    ConfiguredDescriptor {
        quota_mode: true,
        ..limited(key, value, per(tokens, Unit::Hour))
    }
}

/// Models with a budget each, and one that has a budget for one tier of clients besides that of all.
pub(super) fn budgets(models: &[(&str, u32)]) -> Vec<ConfiguredDomain> {
    let models = models
        .iter()
        .map(|(model, tokens)| quota("model_name_override", model, *tokens));
    let tiers = [
        quota("rule-0-match-0", "rule-0-match-0", 2),
        quota("rule-1-match--1", "rule-1-match--1", 4),
    ];
    let tiers = descriptor("model_name_override", "tiered", tiers);
    let backend = descriptor("backend_name", BACKEND, models.chain([tiers]));
    vec![domain(DOMAIN, [backend])]
}

/// The calls about a model: with a cost of their own, or counted as one request.
struct Model<'a> {
    caller: &'a mut Caller,
    name: &'a str,
}

impl Model<'_> {
    /// Whether a call is allowed, and what is left.
    fn ask(&mut self, cost: Option<u64>) -> (bool, u32) {
        let entries = [
            ("backend_name", BACKEND),
            ("model_name_override", self.name),
        ];
        let answer = self.caller.call(one(DOMAIN, &entries, cost)).unwrap();
        let status = &answer.statuses[0];
        assert_eq!(answer.overall_code, status.code);
        (status.code() == LimitCode::Ok, status.limit_remaining)
    }
}

fn play(redis: Option<&RedisServer>) {
    let limits = budgets(&[
        ("per-model", 10),
        ("even", 20),
        ("odd", 21),
        ("small", 10),
        ("large", MOST),
        ("exact", MOST),
    ]);
    let redis = redis.map(RedisServer::address);
    let deployed = Deployed::start_for_models(redis, &limits);
    let log = deployed.server.log.wait_for("--quotaRateLimitServiceAddr");
    assert!(log.contains("WARN"), "{log}");
    let caller = &mut deployed.caller();

    // The first request is counted, and its 20 tokens in full: the next one is denied.
    let mut model = Model {
        caller,
        name: "per-model",
    };
    assert_eq!(model.ask(None), (true, 9));
    assert!(!model.ask(Some(20)).0);
    assert_eq!(model.ask(None), (false, 0));
    assert_eq!(model.ask(Some(0)), (false, 0));

    // Where a request costs nothing, a budget of N admits N / C + 1 requests of C tokens.
    for (name, budget, cost) in [
        ("even", 20, 10),
        ("odd", 21, 10),
        ("small", 10, 20),
        ("large", MOST, MOST),
    ] {
        let mut model = Model { caller, name };
        for time in 0..=budget / cost {
            let left = budget - cost * time;
            assert_eq!(model.ask(Some(0)), (true, left), "{name}");
            model.ask(Some(cost.into()));
        }
        assert_eq!(model.ask(Some(0)), (false, 0), "{name}");
    }

    let mut model = Model {
        caller,
        name: "exact",
    };
    assert_eq!(model.ask(None), (true, MOST - 1));
    assert_eq!(model.ask(Some(u64::from(MOST) - 2)), (true, 1));
    assert_eq!(model.ask(None), (true, 0));
    assert_eq!(model.ask(None), (false, 0));

    assert_of_tiers(caller);
}

/// A request of two budgets is denied when both are used up.
fn assert_of_tiers(caller: &mut Caller) {
    for expected in [
        [true, true],
        [true, true],
        [false, true],
        [false, true],
        [false, false],
    ] {
        let of = |rule: &str| {
            let entries = [
                ("backend_name", BACKEND),
                ("model_name_override", "tiered"),
                (rule, rule),
            ];
            one(DOMAIN, &entries, None).descriptors.remove(0)
        };
        let mut call = one(DOMAIN, &[], None);
        call.descriptors = vec![of("rule-0-match-0"), of("rule-1-match--1")];
        let answer = caller.call(call).unwrap();
        let is_ok = |code: LimitCode| code == LimitCode::Ok;
        let codes: Vec<bool> = answer
            .statuses
            .iter()
            .map(|status| is_ok(status.code()))
            .collect();
        assert_eq!(codes, expected);
        assert_eq!(is_ok(answer.overall_code()), expected.contains(&true));
    }
}

#[test]
fn budgets_of_tokens_hold_in_memory() {
    within_a_window(HOUR, || play(None));
}

#[test]
fn budgets_of_tokens_hold_over_redis() {
    within_a_window(HOUR, || play(Some(&RedisServer::start())));
}
