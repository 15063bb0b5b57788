//! An overlay: other algorithms for limits that do not say how they are counted, from a file that is followed.

use tidegate_testkit::eventually;
use tidegate_testkit_server::TestFolder;

use super::{calling, codes};
use crate::grpc::start_in;

const RULES: &str = "
domain: infra/gw/http
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: own, rate_limit: {unit: day, requests_per_unit: 1000}, tidegate: {algorithm: sliding_window_counter}}
";
const TWO: &str = "- {path: 'infra/gw/http.*', tidegate: {algorithm: token_bucket, burst: 2}}\n";

#[tokio::test]
async fn an_overlay_is_followed_and_an_invalid_one_changes_nothing() {
    let folder = TestFolder::new();
    folder.write("overlay.yaml", TWO);
    let server = start_in(folder, Some(RULES), "overlay: FOLDER/overlay.yaml\n");
    let mut client = server.client().await;
    let asked = |value: &str| calling("infra/gw/http", &[&*format!("a={value}")]);
    for expected in ["O O", "O O", "X X"] {
        let answer = client.ask(asked("first")).await.unwrap();
        assert_eq!(codes(&answer), expected);
        let limit = answer.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!(limit.requests_per_unit, 1_000, "as it is written");
    }
    let own = || calling("infra/gw/http", &["own=a"]);
    for _ in 0..3 {
        assert_eq!(codes(&client.ask(own()).await.unwrap()), "O O");
    }

    server.folder.write(
        "overlay.yaml",
        "- {path: 'infra/gw/http.*', tidegate: {algorithm: bucket}}\n",
    );
    let problem = || server.server.ask("GET /readyz", "").body;
    eventually("the problem is shown", async || {
        problem().contains("overlay.yaml")
    })
    .await;
    for expected in ["O O", "O O", "X X"] {
        let answer = client.ask(asked("second")).await.unwrap();
        assert_eq!(codes(&answer), expected, "the last one stays");
    }

    server
        .folder
        .write("overlay.yaml", &TWO.replace("burst: 2", "burst: 5"));
    let mut number = 0;
    let is_in_force = async || {
        number += 1;
        let value = format!("third-{number}");
        for _ in 0..5 {
            if codes(&client.ask(asked(&value)).await.unwrap()) != "O O" {
                return false;
            }
        }
        codes(&client.ask(asked(&value)).await.unwrap()) == "X X"
    };
    eventually("the change is in force", is_in_force).await;
    assert!(!problem().contains("overlay.yaml"), "{}", problem());

    server.folder.write("overlay.yaml", "[]\n");
    let is_gone = async || {
        number += 1;
        let value = format!("fourth-{number}");
        let mut passed = 0;
        while passed < 7 && codes(&client.ask(asked(&value)).await.unwrap()) == "O O" {
            passed += 1;
        }
        passed == 7
    };
    eventually("the limit counts in windows again", is_gone).await;
    let rules = server.server.ask("GET /v1/rules", "");
    assert!(
        rules.body.contains("\"algorithm\":\"fixed_window\""),
        "{}",
        rules.body
    );
}

#[tokio::test]
async fn a_changed_rule_file_is_read_with_the_overlay() {
    let folder = TestFolder::new();
    folder.write("overlay.yaml", TWO);
    let server = start_in(folder, Some(RULES), "overlay: FOLDER/overlay.yaml\n");
    let mut client = server.client().await;
    server
        .folder
        .write("rules.yaml", &RULES.replace("key: a", "key: b"));
    server.server.reload();
    let mut number = 0;
    let is_in_force = async || {
        number += 1;
        let value = format!("b=x{number}");
        let mut found = Vec::new();
        for _ in 0..3 {
            let answer = client
                .ask(calling("infra/gw/http", &[&*value]))
                .await
                .unwrap();
            found.push(codes(&answer));
        }
        found == ["O O", "O O", "X X"]
    };
    eventually("the new limit is a bucket", is_in_force).await;
}
