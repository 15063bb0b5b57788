//! A recording has all that is needed to make its decisions again.

use std::fs::File;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate::rules::{FrontEnd, RuleSet, RuleSettings, ValueDigest};
use tidegate::{Attributes, Gate, InvalidCredentials, MemoryStore, Timestamp};
use tidegate_rehearse::{
    ClientNames, InputProgress, InputSettings, LogInput, ScaleSettings, SimulationSettings,
    simulate,
};
use tidegate_testkit_server::TestFolder;

use super::{allows, lines_of, recorded_limits, serve};

const RULES: &str = "rules:
- {id: bucket, per: [user_id], limit: 20/second burst 5}
- {id: log, per: [user_id], limit: 30/second, algorithm: sliding_window_log, mode: shadow}
- {id: slots, match: {path: /a}, per: [], limit: 40/second, algorithm: sliding_window_slots}
- {id: fixed, per: [tier], limit: 50/minute; 90/hour, tiers: {pro: 70/minute}, algorithm: fixed_window}
";

#[test]
fn the_same_decisions_are_made_again_from_the_lines() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", RULES);
    let server = serve(&folder, "record: FOLDER/r", &["--rules", "rules.yaml"]);
    let mut client = server.client();
    let mut answers = Vec::new();
    for number in 0..300 {
        let user = format!("u{}", number % 3);
        let (path, tier) = (["/a", "/b"][number % 2], ["free", "pro"][number % 3 % 2]);
        let attributes = json!({"user_id": user, "path": path, "tier": tier});
        let body = json!({"attributes": attributes, "cost": 1 + number % 2}).to_string();
        answers.push(client.ask("POST /v1/check", &body).json());
    }
    server.stop();

    let gate = Gate::new(MemoryStore::new(), RuleSet::from_yaml(RULES).unwrap());
    let lines = lines_of(&folder, "r");
    assert_eq!(lines.len(), 301);
    let denied = answers.iter().filter(|answer| answer["allowed"] == false);
    assert!(denied.count() > 50);
    for (line, answer) in lines[1..].iter().zip(&answers) {
        assert_eq!(line["limits"], recorded_limits(answer));
        let decided = decide(&gate, line);
        assert_eq!(&decided, line, "made again");
    }
}

/// The line with what a gate decides about it.
fn decide(gate: &Gate, line: &Value) -> Value {
    let mut attributes = Attributes::new().with_cost(line["cost"].as_u64().unwrap());
    for (name, value) in line["attributes"].as_object().unwrap() {
        let inserted = attributes.insert(name.as_str(), value.as_str().unwrap());
        inserted.unwrap();
    }
    // As text, exact to the microsecond.
    let at = line["t"].to_string().parse::<f64>().unwrap() * 1e6;
    let at = Timestamp::from_micros(format!("{at:.0}").parse().unwrap());
    let decided = gate.try_decide_by(&gate.rules(), FrontEnd::Http, &attributes.at(at));
    let decision = decided.unwrap().into_decision();
    let limits = decision.limits().map(|limit| {
        let mut kept = json!({"rule": limit.rule.id(), "allowed": limit.outcome.allowed});
        if limit.is_shadow {
            kept["shadow"] = json!(true);
        }
        kept
    });
    let mut made = line.clone();
    made["limits"] = limits.collect();
    made["allowed"] = json!(decision.is_allowed());
    made["rule"] = json!(decision.rule());
    made["reason"] = json!(decision.reason().map(tidegate::Reason::name));
    made
}

/// Secret values are named in clear, by a hash and in a candidate alone; one client in two is in the rollout.
const TRIED: &str = "rules:
- {id: users, per: [user_id], limit: 600/minute burst 4, candidate: {limit: 120/minute burst 2, overrides: {u2: 1/hour}}, rollout: 50%}
- id: keys
  per: [api_key]
  limit: 9/hour
  overrides: {named-key: 6/hour, 'sha256:580843d03d2216ff1a275d0991bad66e4d1af871171d929e9de604b7959f9bca': 3/hour}
  candidate: {overrides: {tried-key: 2/hour}}
- {id: few, match: {path: /few}, per: [ip], limit: 5/hour, algorithm: fixed_window}
- {id: all, per: [], limit: 90/hour, mode: shadow}
";

#[test]
fn simulate_makes_the_decisions_of_a_recording_again() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", TRIED);
    let secret = "0123456789abcdef0123456789abcdef";
    folder.write("secret", secret);
    let settings = "record: FOLDER/r\nkey_secret_file: FOLDER/secret";
    let arguments = ["--rules", "rules.yaml", "--grpc", "127.0.0.1:0"];
    let server = serve(&folder, settings, &arguments);
    let mut client = server.client();
    for number in 0..120 {
        let key = ["named-key", "other-key", "tried-key", "plain-key"][number % 4];
        let attributes = json!({"user_id": format!("u{}", number % 5), "api_key": key});
        let body = json!({"attributes": attributes, "cost": 1 + number % 2});
        client.ask("POST /v1/check", &body.to_string());
        if number % 10 == 0 {
            let few = format!("ip=192.0.2.{} path=/few", number % 3);
            allows(
                &server,
                &[&few, "user_id=u1", "ip=192.0.2.9 api_key=other-key"],
            );
        }
    }
    server.stop();
    let is_decision = |line: &Value| line.get("t").is_some();
    let recorded: Vec<Value> = lines_of(&folder, "r")
        .into_iter()
        .filter(is_decision)
        .collect();
    assert_eq!(recorded.len(), 132);

    let file = folder.path("r");
    let log = LogInput {
        name: "r".to_owned(),
        size: None,
        open: Arc::new(move || Ok(Box::new(File::open(&file)?))),
    };
    let again = folder.path("again");
    let settings = SimulationSettings {
        input: InputSettings::default(),
        rules: RuleSet::from_yaml(TRIED).unwrap(),
        against: None,
        scale: ScaleSettings::off(),
        names: ClientNames {
            digest: ValueDigest::new(secret.as_bytes()),
            settings: RuleSettings::default(),
            anonymous: false,
            secret_sources: Vec::new(),
            is_secret_given: true,
        },
        invalid_credentials: InvalidCredentials::default(),
        record: Some(Box::new(File::create(&again).unwrap())),
    };
    simulate(&[log], settings, &Arc::new(InputProgress::default())).unwrap();
    let made = lines_of(&folder, "again");
    let made: Vec<Value> = made.into_iter().filter(is_decision).collect();
    assert_eq!(made.len(), recorded.len());
    let has = |line: &Value, name: &str| line["limits"].to_string().contains(name);
    assert!(recorded.iter().any(|line| has(line, "candidate")));
    assert!(
        recorded
            .iter()
            .any(|line| line.get("parts").is_some() && line["allowed"] == false)
    );
    for (number, (was, is)) in recorded.iter().zip(&made).enumerate() {
        let part = |line: &Value| {
            (
                line["t"].clone(),
                line["allowed"].clone(),
                line["limits"].clone(),
            )
        };
        assert_eq!(part(is), part(was), "line {number}: {was}");
    }
}
