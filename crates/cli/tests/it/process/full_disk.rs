//! A disk without room for new rules: the old ones stay, in force and on the disk.

use serde_json::{Value, json};

use crate::server::ProgramFolder;

/// 32 KiB, in blocks of 512 bytes.
const BLOCKS: u32 = 64;

fn rules(count: u32) -> Value {
    let rule = |number| {
        let text = "long ".repeat(20);
        json!({"id": format!("rule-{number}"), "description": text, "per": ["ip"], "limit": "10/minute"})
    };
    json!({"rules": (0..count).map(rule).collect::<Vec<Value>>()})
}

#[test]
fn rules_that_find_no_room_are_refused_and_the_old_ones_stay() {
    let folder = ProgramFolder::new();
    let server = folder.serve_with_small_files(BLOCKS, &[]);
    let before = server
        .ask("PUT /v1/rules", &rules(2).to_string())
        .with_status(200)
        .json();

    let refused = server
        .ask("PUT /v1/rules", &rules(1_000).to_string())
        .with_status(507);
    let detail = refused.detail();
    assert!(detail.contains("nothing was changed"), "{detail}");
    assert!(detail.contains("free some space"), "{detail}");
    assert_eq!(server.ask("GET /v1/rules", "").json(), before);
    let history = server.ask("GET /v1/rules/history", "").json();
    assert_eq!(history["history"].as_array().unwrap().len(), 1);
    let left = std::fs::read_dir(folder.path("data/rules"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "nothing half-written is left");

    let one = json!({"id": "one-more", "per": [], "limit": "5/minute"});
    server
        .ask("POST /v1/rules", &one.to_string())
        .with_status(201);
    let after = server.ask("GET /v1/rules", "").json();
    assert_eq!(
        (&after["version"], after["rules"].as_array().unwrap().len()),
        (&json!(2), 3)
    );
    server.kill();

    assert_eq!(folder.serve(&[]).ask("GET /v1/rules", "").json(), after);
}
