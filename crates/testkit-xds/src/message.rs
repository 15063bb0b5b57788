//! Resources of the type `RateLimitConfig`.

use prost::Message as _;
use tidegate_codec::grpc::proto::rate_limit::Unit;
use tidegate_codec::grpc::proto::rate_limit_config::{
    ConfiguredDescriptor, ConfiguredDomain, ConfiguredLimit,
};

pub use tidegate_codec::grpc::proto::rate_limit_config::TYPE_URL as RATE_LIMIT_CONFIG;

/// A domain, in a resource of the same name.
pub fn domain(
    name: &str,
    descriptors: impl IntoIterator<Item = ConfiguredDescriptor>,
) -> ConfiguredDomain {
    ConfiguredDomain {
        name: name.to_owned(),
        domain: name.to_owned(),
        descriptors: descriptors.into_iter().collect(),
    }
}

/// A descriptor without a limit, and those below it. An empty value is any.
pub fn descriptor(
    key: &str,
    value: &str,
    below: impl IntoIterator<Item = ConfiguredDescriptor>,
) -> ConfiguredDescriptor {
    ConfiguredDescriptor {
        key: key.to_owned(),
        value: value.to_owned(),
        descriptors: below.into_iter().collect(),
        ..ConfiguredDescriptor::default()
    }
}

/// A descriptor with a limit. An empty value is any.
pub fn limited(key: &str, value: &str, limit: ConfiguredLimit) -> ConfiguredDescriptor {
    ConfiguredDescriptor {
        rate_limit: Some(limit),
        ..descriptor(key, value, [])
    }
}

/// So many requests for each unit of time.
pub fn per(requests: u32, unit: Unit) -> ConfiguredLimit {
    ConfiguredLimit {
        unit: unit.into(),
        requests_per_unit: requests,
        ..ConfiguredLimit::default()
    }
}

/// Domains as the bytes of resources.
pub fn encoded(domains: &[ConfiguredDomain]) -> Vec<Vec<u8>> {
    domains
        .iter()
        .map(ConfiguredDomain::encode_to_vec)
        .collect()
}
