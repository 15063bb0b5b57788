//! Tokens in files: exchanged while the server runs.

use tidegate_testkit::wait_until;

use crate::Server;
use crate::resp::{Client, Value};
use tidegate_testkit_server::{PATIENCE, TestFolder};

const CONFIG: &str = "tokens:\n  - {name: ops, token_file: ops.token, scopes: [read, check]}\n";

fn status(server: &Server, token: &str) -> u16 {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    server.ask_with("GET /v1/rules", &headers, "").status
}

fn logs_in(server: &Server, token: &str) -> bool {
    let reply = Client::to(server).ask(&format!("AUTH {token}"));
    !matches!(reply, Value::Error(_))
}

#[test]
fn a_token_file_that_changes_is_read_again_and_a_bad_one_keeps_the_last_token() {
    let folder = TestFolder::new();
    let config = CONFIG.replace("ops.token", &folder.file("ops.token"));
    folder.write("tidegate.yaml", &config);
    folder.write("ops.token", "first-secret\n");
    let server = folder.serve(&["--config", "tidegate.yaml", "--resp", "127.0.0.1:0"]);
    assert_eq!(
        [
            status(&server, "first-secret"),
            status(&server, "second-secret")
        ],
        [200, 401]
    );

    // Followed without a signal.
    folder.write("ops.token", "second-secret\n");
    wait_until("the new token counts", PATIENCE, || {
        (status(&server, "second-secret") == 200).then_some(())
    });
    assert_eq!(status(&server, "first-secret"), 401);
    assert!(logs_in(&server, "second-secret") && !logs_in(&server, "first-secret"));

    // Empty, then gone: the last one stays.
    folder.write("ops.token", "\n");
    let log = server.log.wait_for("there is no token in `");
    assert!(log.contains("ERROR the token stays as it was"), "{log}");
    std::fs::remove_file(folder.path("ops.token")).unwrap();
    server.log.wait_for("cannot read the token in `");
    assert_eq!(status(&server, "second-secret"), 200);
    assert_eq!(status(&server, ""), 401);

    // SIGHUP reads it immediately.
    folder.write("ops.token", "third-secret");
    server.reload();
    wait_until("the third token counts", PATIENCE, || {
        (status(&server, "third-secret") == 200).then_some(())
    });
    assert!(
        !server.log.text().contains("-secret"),
        "{}",
        server.log.text()
    );
}
