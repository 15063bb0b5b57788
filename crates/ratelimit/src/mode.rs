//! What the variables of envoyproxy/ratelimit say that no setting of Tidegate does.

/// How a server behaves that is started in place of envoyproxy/ratelimit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnvoyRatelimit {
    /// Whether it is healthy before the first configuration of a management server.
    pub healthy_without_configuration: bool,
    /// Whether it is unhealthy while no domain is known.
    pub healthy_with_domains_only: bool,
    /// Whether it is unhealthy while Redis does not answer.
    pub healthy_with_redis_only: bool,
}

impl EnvoyRatelimit {
    /// The name of the mode, as a value of `--as` and `TIDEGATE_AS`.
    pub const NAME: &str = "envoy-ratelimit";
    /// The name of the program that is replaced. A program that is started by this name is in this mode.
    pub const PROGRAM: &str = "ratelimit";
}
