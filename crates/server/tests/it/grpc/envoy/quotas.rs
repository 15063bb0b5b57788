//! Quotas of a file of envoyproxy/ratelimit, and what Envoy knows of them.

use super::Front;

const RULES: &str = "
domain: web
descriptors:
  - key: remote_address
    quota_mode: true
    metadata: {pool: shared}
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: user
    quota_mode: true
    metadata: {pool: reserved}
    rate_limit: {unit: day, requests_per_unit: 1}
";

#[test]
fn envoy_passes_on_which_quotas_are_exceeded_and_denies_when_all_are() {
    let show = r#"route: {cluster: app}
                          response_headers_to_add:
                            - header: {key: x-exceeded, value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:quotaModeViolations)%"}
                            - header: {key: x-pool, value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:pool)%"}"#;
    let front = Front::new(RULES, |config| {
        config.replace("route: {cluster: app}", show)
    });
    for (status, exceeded) in [(200, "[]"), (200, "[1]"), (200, "[1]"), (429, "[0,1]")] {
        let reply = front.envoy.get("/", &[("x-user", "u1")]);
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("x-exceeded"), Some(exceeded));
        let pool = (status == 200).then_some("shared");
        assert_eq!(reply.header("x-pool"), pool);
    }
}
