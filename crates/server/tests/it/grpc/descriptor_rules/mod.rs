//! Decisions and answers by rules in the form of envoyproxy/ratelimit, with a store in memory and with Redis.

mod answers;
mod decisions;
mod failing;
mod gateways;
mod overlay;
mod overrides;

use tidegate_server::grpc_messages::rate_limit::{RateLimitRequest, RateLimitResponse};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit_server::TestFolder;

use super::{Client, Running, adding, descriptor, is_ok, request, start_in};

/// A server for each store, with these rules and settings.
fn servers(rules: &str, settings: &str) -> [(&'static str, Running, Option<RedisServer>); 2] {
    let memory = start_in(TestFolder::new(), Some(rules), settings);
    let redis = RedisServer::start();
    // Many tests run at the same time, and this is not about how fast Redis is.
    let shared = format!("{settings}\nredis: {}\nredis_deadline: 5s\n", redis.url());
    let remote = start_in(TestFolder::new(), Some(rules), &shared);
    [("memory", memory, None), ("redis", remote, Some(redis))]
}

/// A call about descriptors such as `user=a path=/x`, each with its own hits at the end if it has any: `user=a +3`.
fn calling(domain: &str, descriptors: &[&str]) -> RateLimitRequest {
    let one = |text: &&str| match text.rsplit_once(" +") {
        Some((entries, hits)) => adding(entries, hits.parse().unwrap()),
        None => descriptor(text),
    };
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: descriptors.iter().map(one).collect(),
        ..request(&[])
    }
}

/// The codes of an answer: of the call, then of each descriptor. `O` is OK, `X` is `OVER_LIMIT`.
fn codes(answer: &RateLimitResponse) -> String {
    let code = |code| if is_ok(code) { 'O' } else { 'X' };
    let statuses = answer.statuses.iter().map(|status| code(status.code));
    std::iter::once(code(answer.overall_code))
        .chain([' '])
        .chain(statuses)
        .collect()
}

/// A call, how often it is made, and the codes of each answer.
type Call<'c> = (&'c [&'c str], usize, &'c str);

/// Makes calls in their order.
async fn play(name: &str, client: &mut Client, domain: &str, calls: &[Call<'_>]) {
    for (index, (descriptors, times, expected)) in calls.iter().enumerate() {
        for time in 0..*times {
            let answer = client.ask(calling(domain, descriptors)).await.unwrap();
            assert_eq!(
                codes(&answer),
                *expected,
                "{name}: call {index}, time {time}: {descriptors:?}"
            );
        }
    }
}
