//! Reservations over HTTP and the Redis protocol: reserved like a check, settled by their id, over every store alike.

use serde_json::{Value, json};
use tidegate_testkit::redis::RedisServer;

use super::super::resp::{Client, Value as RespValue};
use crate::Server;
use tidegate_testkit_server::{ClientReply, TestFolder};

const RULES: &str = "
rules:
  - {id: requests, per: [api_key], missing: deny, limit: 5/day, algorithm: fixed_window, anchor: first_request}
  - {id: tokens, per: [api_key], missing: deny, unit: tokens, limit: 100/day, algorithm: fixed_window, anchor: first_request}
";
/// One for the memory of the server, one for Redis.
const STORES: [bool; 2] = [false, true];

/// Runs a story on a server with these rules, in memory and over Redis.
fn over_every_store(rules: &str, story: impl Fn(&Server)) {
    for is_shared in STORES {
        let folder = TestFolder::new();
        folder.write("rules.yaml", rules);
        let redis = is_shared.then(RedisServer::start);
        let url = redis.as_ref().map(RedisServer::url);
        let mut arguments = vec!["--rules", "rules.yaml", "--resp", "127.0.0.1:0"];
        if let Some(url) = &url {
            arguments.extend(["--redis", url]);
        }
        // Many tests run at once, and this is not about how fast Redis is.
        let calm = url.as_ref().map(|_| ("TIDEGATE_REDIS_DEADLINE", "5s"));
        story(&folder.serve_with(&arguments, calm.as_slice()));
    }
}

fn reserve(server: &Server, more: &Value) -> ClientReply {
    let mut body = json!({"attributes": {"api_key": "k1"}});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    server.ask("POST /v1/reserve", &body.to_string())
}

fn id(reply: &ClientReply) -> String {
    reply.json()["reservation"].as_str().unwrap().to_owned()
}

fn settle(server: &Server, id: &str, body: &Value) -> ClientReply {
    let call = format!("POST /v1/reservations/{id}/settle");
    server.ask(&call, &body.to_string())
}

#[test]
fn an_estimate_is_charged_and_replaced_by_the_true_cost() {
    over_every_store(RULES, |server| {
        let reserved = reserve(server, &json!({"costs": {"tokens": 60}})).with_status(200);
        let body = reserved.json();
        assert_eq!(
            (&body["allowed"], &body["rule"]),
            (&json!(true), &json!("requests"))
        );
        let id = id(&reserved);
        assert!(
            id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()),
            "{id}"
        );
        assert!(body["expires_at"].as_f64().unwrap() > 1e9);
        let denied = reserve(server, &json!({"costs": {"tokens": 60}})).with_status(429);
        assert_eq!(denied.json()["rule"], "tokens");
        assert_eq!(denied.json()["reservation"], Value::Null);
        assert_eq!(denied.json()["expires_at"], Value::Null);
        assert!(denied.header("retry-after").is_some());

        let open = server
            .ask(&format!("GET /v1/reservations/{id}"), "")
            .with_status(200);
        assert_eq!(open.json()["state"], "open");
        assert_eq!(open.json()["reserved"], json!({"tokens": 60}));
        assert_eq!(open.json()["settled"], Value::Null);
        assert_eq!(open.json()["limits"][0]["settled"], Value::Null);
        assert!(!open.body.contains("k1"), "keys are digests: {}", open.body);

        let settled = settle(server, &id, &json!({"costs": {"tokens": 25}})).with_status(200);
        let expected = json!({
            "reservation": id, "settled": {"tokens": 25}, "given_back": {"tokens": 35}, "overrun": {"tokens": 0},
            "limits": [
                {"rule": "requests", "limit": 5, "reserved": 1, "settled": 1, "given_back": 0, "overrun": 0, "uncharged": 0},
                {"rule": "tokens", "limit": 100, "reserved": 60, "settled": 25, "given_back": 35, "overrun": 0, "uncharged": 0},
            ],
        });
        assert_eq!(settled.json(), expected);
        let again = settle(server, &id, &json!({"costs": {"tokens": 25}})).with_status(200);
        assert_eq!(again.json(), expected);
        settle(server, &id, &json!({"costs": {"tokens": 26}})).with_status(409);
        settle(server, &id, &json!({"cost": 25})).with_status(422);
        server
            .ask(&format!("DELETE /v1/reservations/{id}"), "")
            .with_status(409);
        let extend = json!({"ttl": 60}).to_string();
        server
            .ask(&format!("PUT /v1/reservations/{id}"), &extend)
            .with_status(409);
        let looked = server
            .ask(&format!("GET /v1/reservations/{id}"), "")
            .with_status(200);
        assert_eq!(looked.json()["state"], "settled");
        assert_eq!(looked.json()["settled"], json!({"tokens": 25}));

        // 75 are left: the denied one took nothing.
        let third = reserve(server, &json!({"costs": {"tokens": 75}, "ttl": 2})).with_status(200);
        let end = third.json()["expires_at"].as_f64().unwrap();
        let extend = json!({"ttl": 600}).to_string();
        let call = format!("PUT /v1/reservations/{}", self::id(&third));
        let extended = server.ask(&call, &extend).with_status(200);
        assert!(extended.json()["expires_at"].as_f64().unwrap() > end + 590.0);
        let over = settle(server, &self::id(&third), &json!({"costs": {"tokens": 90}}));
        let over = over.with_status(200).json();
        assert_eq!(over["overrun"], json!({"tokens": 15}));
        assert_eq!(
            (
                &over["limits"][1]["overrun"],
                &over["limits"][1]["uncharged"]
            ),
            (&json!(0), &json!(15))
        );
    });
}

#[test]
fn a_cancelled_one_gives_all_of_it_back() {
    over_every_store(RULES, |server| {
        let reserved = reserve(server, &json!({"cost": 5})).with_status(200);
        let id = id(&reserved);
        reserve(server, &json!({"cost": 1})).with_status(429);
        let call = format!("DELETE /v1/reservations/{id}");
        let cancelled = server.ask(&call, "").with_status(200).json();
        assert_eq!(
            (&cancelled["settled"], &cancelled["given_back"]),
            (&json!(0), &json!(5))
        );
        assert_eq!(server.ask(&call, "").with_status(200).json(), cancelled);
        assert_eq!(
            settle(server, &id, &json!({"cost": 0}))
                .with_status(200)
                .json(),
            cancelled
        );
        settle(server, &id, &json!({"cost": 1})).with_status(409);
        reserve(server, &json!({"cost": 5})).with_status(200);
    });
}

#[test]
fn what_cannot_be_reserved_or_settled_is_refused() {
    over_every_store(RULES, |server| {
        for (more, status) in [
            (json!({"cost": 0}), 400),
            (json!({"costs": {"tokens": 0}}), 400),
            (json!({"costs": {}}), 400),
            (json!({"cost": 1, "costs": {"tokens": 1}}), 400),
            (json!({"cost": 1, "ttl": 0}), 400),
            (json!({"cost": 1, "ttl": 0.999_999}), 400),
            (json!({"cost": 1, "ttl": 86_401}), 400),
            (json!({"cost": 1, "ttl": "5m"}), 400),
            (json!({"cost": 1, "timestamp": 1}), 400),
        ] {
            reserve(server, &more).with_status(status);
        }
        let unknown = "0123456789abcdef0123456789abcdef";
        for id in [unknown, "x", "0123"] {
            settle(server, id, &json!({"cost": 1})).with_status(404);
            server
                .ask(&format!("DELETE /v1/reservations/{id}"), "")
                .with_status(404);
            server
                .ask(&format!("GET /v1/reservations/{id}"), "")
                .with_status(404);
            let extend = json!({"ttl": 60}).to_string();
            server
                .ask(&format!("PUT /v1/reservations/{id}"), &extend)
                .with_status(404);
        }
        let problem = settle(server, unknown, &json!({"cost": 1}));
        assert!(!problem.body.contains(unknown), "{}", problem.body);
        settle(server, unknown, &json!({})).with_status(400);
        let none = json!({"attributes": {"api_key": "k2"}, "costs": {"money": 5}}).to_string();
        let uncharged = server
            .ask("POST /v1/reserve", &none)
            .with_status(200)
            .json();
        assert!(
            uncharged["reservation"].is_string(),
            "the request itself is charged: {uncharged}"
        );
    });
}

#[test]
fn a_permit_is_held_until_its_reservation_ends() {
    let rules = "rules: [{id: jobs, per: [], limit: 1, algorithm: concurrency}]";
    over_every_store(rules, |server| {
        let reserved = reserve(server, &json!({})).with_status(200);
        let id = id(&reserved);
        assert_eq!(reserved.json()["lease"], json!(id));
        server
            .ask(&format!("DELETE /v1/leases/{id}"), "")
            .with_status(404);
        server
            .ask(&format!("PUT /v1/leases/{id}"), "")
            .with_status(404);
        reserve(server, &json!({})).with_status(429);
        settle(server, &id, &json!({"cost": 1})).with_status(200);
        reserve(server, &json!({})).with_status(200);
    });
}

#[test]
fn a_reset_forgives_what_open_reservations_held() {
    let rules = "rules: [{id: tokens, per: [api_key], limit: 100/day, algorithm: fixed_window, anchor: first_request}]";
    over_every_store(rules, |server| {
        let id = id(&reserve(server, &json!({"cost": 60})).with_status(200));
        let reset = json!({"attributes": {"api_key": "k1"}}).to_string();
        server.ask("POST /v1/reset", &reset).with_status(200);
        reserve(server, &json!({"cost": 90})).with_status(200);
        let settled = settle(server, &id, &json!({"cost": 10}))
            .with_status(200)
            .json();
        assert_eq!(settled["given_back"], 50, "what the caller asked for");
        assert_eq!(
            settled["limits"][0]["given_back"], 0,
            "there was nothing left to give back"
        );
        reserve(server, &json!({"cost": 11})).with_status(429);
    });
}

#[test]
fn one_front_end_settles_what_another_reserved() {
    over_every_store(RULES, |server| {
        let mut client = Client::to(server);
        let fields = |value: RespValue| match value {
            RespValue::Array(items) => items,
            other => panic!("{other:?}"),
        };
        let reserved = fields(client.ask("TG.RESERVE api_key k1 COST 3 TTL 60"));
        let text = |value: &RespValue| match value {
            RespValue::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let names: Vec<String> = reserved.iter().step_by(2).map(text).collect();
        assert_eq!(names[names.len() - 2..], ["reservation", "expires_at"]);
        let id = text(&reserved[reserved.len() - 3]);
        let settled = settle(server, &id, &json!({"cost": 1}))
            .with_status(200)
            .json();
        assert_eq!(settled["given_back"], 2);
        let again = fields(client.ask(&format!("TG.SETTLE {id} 1")));
        assert_eq!(again[3], RespValue::Integer(1));
        assert_eq!(again[5], RespValue::Integer(2));
        assert_eq!(again[7], RespValue::Integer(0));
        let error = client.ask(&format!("TG.SETTLE {id} 2")).error();
        assert!(error.starts_with("CONFLICT "), "{error}");
        let error = client.ask(&format!("TG.CANCEL {id}")).error();
        assert!(error.starts_with("CONFLICT "), "{error}");
        for line in [
            "TG.SETTLE x 1",
            "TG.CANCEL 0123456789abcdef0123456789abcdef",
            "TG.EXTEND x 60",
        ] {
            let error = client.ask(line).error();
            assert!(error.starts_with("NOTFOUND "), "{line}: {error}");
        }
        for line in [
            "TG.RESERVE api_key",
            "TG.RESERVE api_key k1 COST 0",
            "TG.RESERVE api_key k1 COST -1",
            "TG.RESERVE api_key k1 TTL 0",
            "TG.SETTLE x",
            "TG.EXTEND x 60 1",
        ] {
            let error = client.ask(line).error();
            assert!(error.starts_with("ERR "), "{line}: {error}");
        }
        for line in [
            "TG.RELEASE 0123456789abcdef0123456789abcdef",
            "TG.RELEASE x",
            "TG.RENEW x",
        ] {
            assert_eq!(client.ask(line), RespValue::Integer(0), "{line}");
        }
        let id = self::id(&reserve(server, &json!({"cost": 1})).with_status(200));
        let extended = fields(client.ask(&format!("TG.EXTEND {id} 600")));
        assert_eq!(text(&extended[0]), "reservation");
        let cancelled = fields(client.ask(&format!("TG.CANCEL {id}")));
        assert_eq!(cancelled[3], RespValue::Integer(0));
    });
}
