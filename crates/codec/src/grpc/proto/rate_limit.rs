//! Messages of `envoy.service.ratelimit.v3`, and their parts.

use prost::{Enumeration, Message};
use prost_types::{Duration, Struct, Timestamp};

/// The request of Envoy.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// One set of entries by which a request is limited.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<DescriptorEntry>,
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// The value is declared `bytes`: a client's value that is not UTF-8 must not fail the whole call.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorEntry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// The response to Envoy.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    #[prost(enumeration = "LimitCode", tag = "1")]
    pub overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    #[prost(bytes = "bytes", tag = "5")]
    pub raw_body: bytes::Bytes,
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
    #[prost(message, optional, tag = "7")]
    pub quota: Option<Quota>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    #[prost(enumeration = "LimitCode", tag = "1")]
    pub code: i32,
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
    #[prost(message, optional, tag = "5")]
    pub quota: Option<Quota>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Quota {
    #[prost(uint32, tag = "1")]
    pub requests: u32,
    #[prost(message, optional, tag = "2")]
    pub valid_until: Option<Timestamp>,
    #[prost(string, tag = "3")]
    pub id: String,
}

/// Both are strings. On the wire they are the same as bytes, which need no copy of static names.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: bytes::Bytes,
}

/// The decision. `Unknown` is never sent: Envoy lets such requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum LimitCode {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

impl Unit {
    /// Its name in protobuf.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
            Self::Week => "WEEK",
        }
    }
}

/// Units of time: of `RateLimitResponse.CurrentLimit.Unit` and of `envoy.type.v3.RateLimitUnit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}
