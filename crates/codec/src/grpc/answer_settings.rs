//! What an answer to Envoy has besides the decision.

use tidegate::headers::HeaderSettings;

/// What an answer has besides the decision.
#[derive(Debug, Clone)]
pub struct AnswerSettings {
    /// The headers that describe the limits to a client.
    pub headers: HeaderSettings,
    /// Whether a denial says why, in headers `x-tidegate-*`.
    pub has_reasons: bool,
    /// The headers of envoyproxy/ratelimit, if they are sent.
    pub envoy_headers: Option<EnvoyHeaders>,
    /// Which calls have metadata for later filters of Envoy.
    pub metadata: MetadataCalls,
    /// Whether every call passes by rules in the form of envoyproxy/ratelimit. Statuses keep their codes.
    pub shadow: bool,
}

impl Default for AnswerSettings {
    fn default() -> Self {
        Self {
            headers: HeaderSettings::default(),
            has_reasons: true,
            envoy_headers: None,
            metadata: MetadataCalls::default(),
            shadow: false,
        }
    }
}

/// The names of three headers, for allowed and denied calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyHeaders {
    /// Requests per unit of time.
    pub limit: String,
    /// How many are left.
    pub remaining: String,
    /// Seconds until the limit is whole again.
    pub reset: String,
}

/// Which calls have `dynamic_metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetadataCalls {
    /// None.
    None,
    /// Those under a quota.
    #[default]
    OfQuotas,
    /// All, in the form of envoyproxy/ratelimit.
    All,
}
