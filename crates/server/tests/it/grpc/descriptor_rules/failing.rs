//! Without the store: what a limit says that happens then.

use tidegate_testkit_server::TestFolder;
use tonic::Code;

use super::{calling, codes};
use crate::grpc::failure::away;
use crate::grpc::start_in;

const RULES: &str = "
domain: web
descriptors:
  - {key: local, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: nothing, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: allow, rate_limit: {unit: day, requests_per_unit: 1}, tidegate: {on_store_failure: allow}}
  - {key: deny, rate_limit: {unit: day, requests_per_unit: 1}, tidegate: {on_store_failure: deny}}
  - {key: error, rate_limit: {unit: day, requests_per_unit: 1}, tidegate: {on_store_failure: error}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}, tidegate: {on_store_failure: error}}
";

#[tokio::test]
async fn a_limit_goes_on_by_itself_allows_denies_or_fails_the_call() {
    let server = start_in(TestFolder::new(), Some(RULES), &away());
    let mut client = server.client().await;
    #[rustfmt::skip]
    let table: [(&[&str], &str); 14] = [
        (&["local=a"],          "O O"),
        (&["local=a +0"],       "O O"),
        (&["local=a +5"],       "X X"),
        (&["local=a +0"],       "X X"),
        (&["local=b"],          "O O"),
        (&["local=b"],          "O O"),
        (&["local=b"],          "X X"),
        (&["local=b +0"],       "O O"),
        (&["nothing=a +0"],     "O O"),
        (&["nothing=a +1"],     "X X"),
        (&["nothing=a +0"],     "X X"),
        (&["allow=a", "allow=a"], "O OO"),
        (&["deny=a"],           "X X"),
        // One that only counts fails nothing.
        (&["watched=a"],        "O O"),
    ];
    for (asked, expected) in table {
        let answer = client.ask(calling("web", asked)).await.unwrap();
        assert_eq!(codes(&answer), expected, "{asked:?}");
        for status in answer.statuses {
            assert!(
                status.duration_until_reset.unwrap().seconds > 0,
                "{asked:?}"
            );
        }
    }
    for asked in [&["error=a"][..], &["local=c", "error=a"], &["error=a +0"]] {
        let status = client.ask(calling("web", asked)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.message().contains("on_store_failure"), "{status:?}");
    }
    // Over HTTP it is a denial.
    let body = r#"{"attributes": {"domain": "web", "error": "a"}}"#;
    let reply = server.server.ask("POST /v1/check", body);
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["reason"], "store_unavailable");
}
