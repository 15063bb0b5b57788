//! Messages of `ratelimit.config.ratelimit.v3`: the limits that a management server sends. Fields that are not known are
//! ignored.

use prost::Message;
use prost_types::Struct;

/// The type of the resources, each a `RateLimitConfig`.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A `RateLimitConfig`: a domain, or a part of one.
#[derive(Clone, PartialEq, Message)]
pub struct ConfiguredDomain {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<ConfiguredDescriptor>,
}

/// A `RateLimitDescriptor` of a domain.
#[derive(Clone, PartialEq, Message)]
pub struct ConfiguredDescriptor {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<ConfiguredLimit>,
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<ConfiguredDescriptor>,
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
    #[prost(bool, tag = "6")]
    pub detailed_metric: bool,
    #[prost(bool, tag = "7")]
    pub quota_mode: bool,
    #[prost(message, optional, tag = "8")]
    pub metadata: Option<Struct>,
}

/// A `RateLimitPolicy`.
#[derive(Clone, PartialEq, Message)]
pub struct ConfiguredLimit {
    /// A [`Unit`](super::rate_limit::Unit), or a number that is none.
    #[prost(enumeration = "super::rate_limit::Unit", tag = "1")]
    pub unit: i32,
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
    #[prost(bool, tag = "3")]
    pub unlimited: bool,
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub replaces: Vec<ReplacedLimit>,
}

/// A limit that does not apply where another does.
#[derive(Clone, PartialEq, Message)]
pub struct ReplacedLimit {
    #[prost(string, tag = "1")]
    pub name: String,
}
