//! Language models behind the gateway: what is estimated, forwarded, read and settled.

mod denials;
mod requests;
mod settling;
mod streams;

use tidegate_testkit::RawConnection;
use tidegate_testkit::redis::RedisServer;

use crate::running::Gateway;
use crate::upstream::Upstream;

/// A model that answers by script, the gateway in front of it.
pub(crate) struct Model {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    /// Ends with the model.
    pub(crate) redis: Option<RedisServer>,
}

/// Where the gateway counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ModelStore {
    Memory,
    Redis,
}

/// 100 tokens and 100 requests a day, for everyone together.
pub(crate) const TOKENS: &str = "rules:
- {id: requests, per: [], limit: 100/day}
- {id: tokens, per: [], unit: tokens, limit: 100/day}
";

impl Model {
    pub(crate) async fn start(settings: &str, rules: &str) -> Self {
        Self::start_over(ModelStore::Memory, settings, rules).await
    }

    pub(crate) async fn start_over(store: ModelStore, settings: &str, rules: &str) -> Self {
        let upstream = Upstream::start().await;
        let mut settings = format!("upstream: http://{}\n{settings}", upstream.address);
        let redis = match store {
            ModelStore::Memory => None,
            ModelStore::Redis => Some(RedisServer::start()),
        };
        if let Some(redis) = &redis {
            // Many tests run at once, and this is not about how fast Redis is.
            let redis = format!("redis: {}\nredis_deadline: 5s\n", redis.url());
            settings.push_str(&redis);
        }
        Self {
            gateway: Gateway::start(&settings, rules),
            upstream,
            redis,
        }
    }

    /// Posts a body that came to the model; the client, the model's connection, the head and the body as they came.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        body: &str,
    ) -> (RawConnection, RawConnection, String, String) {
        let request = post(path, "", body);
        let (client, mut server, head) = self.gateway.begin(&mut self.upstream, &request).await;
        let length = tidegate_testkit::header(&head, "content-length").unwrap();
        let received = server.text(length.parse().unwrap()).await;
        (client, server, head, received)
    }

    /// The answer to a body that the model answers with this JSON.
    pub(crate) async fn answered(&mut self, path: &str, body: &str, json: &str) -> String {
        let (mut client, mut server, ..) = self.post(path, body).await;
        server.send(&ok_json(json)).await;
        client.answer().await
    }

    /// How much of a rule's limit is used.
    pub(crate) async fn used(&self, rule: &str) -> u64 {
        let mut api = RawConnection::to(self.gateway.api).await;
        let question = r#"{"attributes": {}, "costs": {"requests": 0}}"#;
        api.send(&post("/v1/check", "", question)).await;
        let answer = api.answer().await;
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let checked: serde_json::Value = serde_json::from_str(body).unwrap();
        let limits = checked["limits"].as_array().unwrap();
        let limit = limits.iter().find(|limit| limit["rule"] == rule).unwrap();
        limit["limit"].as_u64().unwrap() - limit["remaining"].as_u64().unwrap()
    }

    /// How often the usage of a request ended like this.
    pub(crate) async fn results(&self, result: &str) -> u64 {
        let line = format!("tidegate_usage_total{{result=\"{result}\"}}");
        self.gateway.metric(&line).await.unwrap()
    }
}

pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn ok_json(json: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}",
        json.len()
    )
}

/// The head of a stream of events, in chunks.
pub(crate) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Bytes as a chunk.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:X}\r\n{text}\r\n", text.len())
}
