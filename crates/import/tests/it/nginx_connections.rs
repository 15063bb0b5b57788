//! `limit_conn` of nginx and the rules for it, over the same beginnings and ends of requests.

use std::time::Duration;

use tidegate::{Attributes, Gate, MemoryStore, PermitId};
use tidegate_testkit::nginx::{NginxConnection, NginxProcess};
use tidegate_testkit::{block_on, wait_until};

use super::support::{import, rules};

const PATIENCE: Duration = Duration::from_secs(10);

/// A byte a second beyond the head: a request lasts until its client leaves.
const HTTP: &str = "limit_conn_zone $http_x_key zone=open:1m; limit_conn_status 429;
  server {
    listen 127.0.0.1:PORT; root FOLDER; limit_rate_after 400; limit_rate 1;
    location / { limit_conn open 2; }
  }";

/// A request that has begun: its connection to nginx, and the permit that the rules gave it.
type OpenRequest = (NginxConnection, PermitId);

struct BothLimits {
    nginx: NginxProcess,
    gate: Gate,
}

impl BothLimits {
    fn by_rules(&self, key: &str) -> Option<PermitId> {
        let mut request = Attributes::new();
        request.insert("header.x-key", key).unwrap();
        request.insert("path", "/nginx.conf").unwrap();
        let decision = self.gate.try_decide(&request).unwrap();
        decision.is_allowed().then(|| decision.permit().unwrap())
    }

    fn by_nginx(&self, key: &str) -> Option<NginxConnection> {
        let mut connection = self.nginx.connect().unwrap();
        let status = connection
            .begin("GET /nginx.conf", &[("x-key", key)])
            .unwrap();
        assert!(matches!(status, 200 | 429), "{status}");
        (status == 200).then_some(connection)
    }

    fn begin(&self, key: &str) -> Option<OpenRequest> {
        let (nginx, rules) = (self.by_nginx(key), self.by_rules(key));
        assert_eq!(nginx.is_some(), rules.is_some(), "{key}");
        nginx.zip(rules)
    }

    /// Ends a request, and begins another, which is admitted once nginx has noticed the end.
    fn replace(&self, (connection, permit): OpenRequest, key: &str) -> OpenRequest {
        drop(connection);
        assert!(block_on(self.gate.release(permit)).unwrap());
        let nginx = wait_until("nginx notices the end", PATIENCE, || self.by_nginx(key));
        (nginx, self.by_rules(key).unwrap())
    }
}

#[test]
fn nginx_and_the_rules_admit_as_many_requests_at_a_time() {
    let imported = import(HTTP).unwrap();
    let both = BothLimits {
        nginx: NginxProcess::start("nginx", HTTP),
        gate: Gate::new(MemoryStore::new(), rules(&imported)),
    };
    let first = both.begin("a").unwrap();
    let second = both.begin("a").unwrap();
    assert!(both.begin("a").is_none());
    let other = both.begin("b").unwrap();
    let third = both.replace(first, "a");
    assert!(both.begin("a").is_none(), "two are open again");
    let fourth = both.replace(third, "a");
    drop((second, other, fourth));
}
