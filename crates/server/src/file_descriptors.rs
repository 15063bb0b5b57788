//! File descriptors: every connection needs one. The limit of the process is divided at the start between
//! clients, upstream servers and the API, so that none can take another's part and enough is left for files
//! and for Redis.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_listen::ConnectionBudget;

use crate::config::Config;

/// The value used for an unlimited or larger limit.
const MOST: u64 = 1 << 20;

/// Reserved for files, Redis and DNS lookups; and for each thread with a runtime.
const OWN: u64 = 64;
const PER_THREAD: u64 = 4;

/// The range of connections reserved for each front end but the gateway.
const FOR_FRONT_END: (u64, u64) = (4, 64);

/// The least that clients and upstream servers get.
const LEAST: u64 = 8;

/// How many upstream connections one client may have, unless that is most of them.
const PER_CLIENT: usize = 256;

/// Raises the soft limit to the hard limit. Epoll does not slow down with the number of descriptors.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit on file descriptors");
    }
}

/// How many descriptors the process may have.
fn limit() -> u64 {
    getrlimit(Resource::Nofile)
        .current
        .unwrap_or(MOST)
        .min(MOST)
}

/// The users of file descriptors.
#[derive(Debug, Clone, Copy, Default)]
struct Needs {
    threads: u64,
    /// Front ends other than the gateway.
    front_ends: u64,
    /// Servers behind the gateway, if there is one.
    upstreams: Option<u64>,
    max_upstream_connections: Option<u64>,
    max_upstream_connections_per_client: Option<u64>,
}

/// How the descriptors are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DescriptorShares {
    /// Connections of clients, over all front ends.
    clients: u64,
    /// Connections that each front end but the gateway has in addition.
    front_end: u64,
    /// Connections to servers behind the gateway, and of those for one client.
    upstream: u64,
    per_client: u64,
    /// Whether these exceed the limit.
    is_over: bool,
}

impl DescriptorShares {
    fn new(limit: u64, needs: Needs) -> Self {
        let (least, most) = FOR_FRONT_END;
        let front_end = (limit / 16).clamp(least, most);
        let reserve = OWN
            + PER_THREAD * needs.threads
            + needs.upstreams.unwrap_or(0)
            + front_end * needs.front_ends;
        let left = limit.saturating_sub(reserve);
        let upstream = match needs.upstreams {
            Some(_) => needs
                .max_upstream_connections
                .unwrap_or(left / 2)
                .max(if left < 2 * LEAST { LEAST } else { 1 }),
            None => 0,
        };
        let clients = left.saturating_sub(upstream).max(LEAST);
        let per_client = needs
            .max_upstream_connections_per_client
            .unwrap_or((PER_CLIENT as u64).min(upstream * 3 / 4).max(1));
        Self {
            clients,
            front_end,
            upstream,
            per_client,
            is_over: clients + upstream > left,
        }
    }

    /// Whether clearly fewer clients fit than are wanted. A tenth less makes no difference that anyone has to act on.
    fn falls_short_of(&self, max_connections: u64) -> bool {
        self.clients < max_connections - max_connections / 10
    }
}

/// The file descriptors of a server, divided.
pub(crate) struct FileDescriptors {
    clients: ConnectionBudget,
    front_end: usize,
    /// The most upstream connections, and the most for one client.
    pub(crate) upstream: usize,
    pub(crate) upstream_per_client: usize,
}

impl FileDescriptors {
    /// Divides the descriptors of the process. Logs settings that do not fit.
    pub(crate) fn share_out(config: &Config) -> Self {
        let gateway = config.gateway.as_ref();
        let wide = |number: usize| number as u64;
        let needs = Needs {
            threads: std::thread::available_parallelism().map_or(1, |cores| wide(cores.get())) + 1,
            front_ends: 1
                + u64::from(config.admin.is_some())
                + u64::from(config.has_grpc())
                + u64::from(config.debug.is_some())
                + u64::from(config.stats.prometheus.is_some())
                + u64::from(config.resp.is_some()),
            upstreams: gateway.map(|gateway| {
                let routes = gateway.routes.iter();
                routes.map(|route| wide(route.upstreams.len())).sum()
            }),
            max_upstream_connections: gateway
                .and_then(|gateway| gateway.max_upstream_connections)
                .map(wide),
            max_upstream_connections_per_client: gateway
                .and_then(|gateway| gateway.max_upstream_connections_per_client)
                .map(wide),
        };
        let limit = limit();
        let shares = DescriptorShares::new(limit, needs);
        tracing::debug!(limit, ?shares, "file descriptors");
        if shares.is_over {
            tracing::warn!(
                limit,
                clients = shares.clients,
                upstream = shares.upstream,
                "the limit on file descriptors is too low for that many connections; raise it (`ulimit -n`, LimitNOFILE in systemd), or lower `max_upstream_connections`"
            );
        } else if shares.falls_short_of(wide(config.max_connections)) {
            tracing::warn!(
                limit,
                max_connections = config.max_connections,
                clients = shares.clients,
                upstream = shares.upstream,
                "`max_connections` does not fit into the limit on file descriptors: only this many clients can be connected at a time, others wait; raise the limit (`ulimit -n`, LimitNOFILE in systemd), or lower `max_connections`"
            );
        }
        let narrow = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            clients: ConnectionBudget::new(narrow(shares.clients)),
            front_end: narrow(shares.front_end),
            upstream: narrow(shares.upstream),
            upstream_per_client: narrow(shares.per_client),
        }
    }

    /// The budget of the gateway, which any client may reach.
    pub(crate) fn for_gateway(&self) -> ConnectionBudget {
        self.clients.clone()
    }

    /// The budget of any other front end: part of it is reserved.
    pub(crate) fn for_front_end(&self) -> ConnectionBudget {
        self.clients.with_own(self.front_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        let api = Needs {
            threads: 3,
            front_ends: 2,
            ..Needs::default()
        };
        let gateway = Needs {
            upstreams: Some(1),
            ..api
        };
        let few = Needs {
            max_upstream_connections: Some(100),
            max_upstream_connections_per_client: Some(90),
            ..gateway
        };
        let many = Needs {
            max_upstream_connections: Some(1_000),
            ..gateway
        };
        #[rustfmt::skip]
        let table = [
            // limit needs      clients front_end   upstream    per_client  is_over
            (1_024, api,        820,    64,         0,          1,          false),
            (1_024, gateway,    410,    64,         409,        256,        false),
            (1_024, few,        719,    64,         100,        90,         false),
            (1_024, many,       8,      64,         1_000,      256,        true),
            (256,   gateway,    74,     16,         73,         54,         false),
            (64,    gateway,    8,      4,          8,          6,          true),
            (65_536, gateway,   32_666, 64,         32_665,     256,        false),
        ];
        for (limit, needs, clients, front_end, upstream, per_client, is_over) in table {
            let expected = DescriptorShares {
                clients,
                front_end,
                upstream,
                per_client,
                is_over,
            };
            assert_eq!(DescriptorShares::new(limit, needs), expected, "{limit}");
        }
        // The default of `max_connections` fits nearly into 20,000.
        let nearly = DescriptorShares::new(20_000, gateway);
        assert!(nearly.clients < 10_000, "{nearly:?}");
        assert!(!nearly.falls_short_of(10_000));
        assert!(!nearly.falls_short_of(nearly.clients));
        assert!(nearly.falls_short_of(12_000));
        assert!(DescriptorShares::new(1_024, gateway).falls_short_of(10_000));
    }
}
