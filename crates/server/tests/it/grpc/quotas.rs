//! What a call says of its quotas, in the fields of envoyproxy/ratelimit.

use prost_types::Value;
use prost_types::value::Kind;
use serde_json::{Value as Json, json};

use super::{adding, calling, request, start};

const RULES: &str = "
domain: web
descriptors:
  - key: model
    value: large
    quota_mode: true
    metadata: {route: {pool: large, weight: 3}, tags: [a, yes]}
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: model
    value: small
    quota_mode: true
    metadata: {route: {pool: small, zone: eu}}
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: user
    rate_limit: {unit: day, requests_per_unit: 9}
";

pub(super) fn read(value: Value) -> Json {
    match value.kind.unwrap() {
        Kind::NullValue(_) => Json::Null,
        Kind::BoolValue(flag) => json!(flag),
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::ListValue(list) => list.values.into_iter().map(read).collect(),
        Kind::StructValue(fields) => {
            let fields = fields.fields.into_iter();
            Json::Object(fields.map(|(name, value)| (name, read(value))).collect())
        }
    }
}

#[tokio::test]
async fn a_call_with_a_quota_reports_which_are_exceeded() {
    let server = start(RULES);
    let mut client = server.client().await;
    let both = || request(&["model=large", "user=u", "model=small"]);
    let mut metadata = async |asked| {
        let answer = client.ask(asked).await.unwrap();
        let fields = answer.dynamic_metadata?;
        let kind = Some(Kind::StructValue(fields));
        Some(read(Value { kind }))
    };
    let large = json!({"route": {"pool": "large", "weight": 3.0}, "tags": ["a", true]});
    let small = json!({"route": {"pool": "small", "zone": "eu"}});
    let descriptors = json!([
        {"entries": ["model=large"], "metadata": large},
        {"entries": ["user=u"]},
        {"entries": ["model=small"], "metadata": small},
    ]);
    let expected = json!({
        "domain": "web", "quotaModeEnabled": true, "quotaModeViolations": [],
        "descriptors": descriptors,
        "metadata": {"route": {"pool": "large", "weight": 3.0, "zone": "eu"}, "tags": ["a", true]},
    });
    assert_eq!(metadata(both()).await, Some(expected));
    let expected = json!({
        "domain": "web", "quotaModeEnabled": true, "quotaModeViolations": [0.0],
        "descriptors": descriptors,
        "metadata": small,
    });
    assert_eq!(metadata(both()).await, Some(expected));

    let mut all = calling(vec![adding("model=large", 7), adding("model=small", 8)]);
    all.hits_addend = 2;
    let fields = metadata(all).await.unwrap();
    assert_eq!(fields["quotaModeViolations"], json!([0.0, 1.0]));
    assert_eq!(fields["hitsAddend"], json!(2.0));
    assert_eq!(fields["descriptors"][1]["hitsAddend"], json!(8.0));
    assert_eq!(fields.get("metadata"), None, "no descriptor passed");

    let mut bytes = request(&["model=large a=b"]);
    bytes.descriptors[0].entries[1].value = vec![b'x', 0xff].into();
    bytes
        .descriptors
        .extend(request(&["model=small"]).descriptors);
    let fields = metadata(bytes).await.unwrap();
    assert_eq!(
        fields["descriptors"][0],
        json!({"entries": ["model=large", "a=x\u{fffd}"]})
    );

    assert_eq!(
        metadata(request(&["user=u"])).await,
        None,
        "no quota took part"
    );
}
