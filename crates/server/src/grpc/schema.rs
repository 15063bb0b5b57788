//! The descriptors that reflection serves: files of messages, enums and services.
//!
//! They are compiled from the files in `proto/` next to `src/`; its README says how.

use std::sync::LazyLock;

use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

static FILES: LazyLock<Vec<FileDescriptorProto>> = LazyLock::new(|| {
    let compiled = include_bytes!("../../proto/descriptors.bin");
    let set = FileDescriptorSet::decode(&compiled[..]);
    debug_assert!(set.is_ok(), "`protoc` has written it");
    set.map_or_else(|_| Vec::new(), |set| set.file)
});

/// The file with this name.
pub(super) fn by_name(name: &str) -> Option<&'static FileDescriptorProto> {
    FILES.iter().find(|file| file.name() == name)
}

/// The file that defines a symbol: a service, a method, a message or an enum.
pub(super) fn by_symbol(symbol: &str) -> Option<&'static FileDescriptorProto> {
    FILES.iter().find(|file| {
        let rest = symbol.strip_prefix(file.package());
        let name = rest.and_then(|rest| rest.strip_prefix('.'));
        name.is_some_and(|name| has(file, name))
    })
}

/// Whether a file defines a name in its package.
fn has(file: &FileDescriptorProto, name: &str) -> bool {
    let (first, rest) = match name.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    };
    let is_service = file.service.iter().any(|service| {
        let has_method = |rest: &str| service.method.iter().any(|method| method.name() == rest);
        service.name() == first && rest.is_none_or(has_method)
    });
    let is_enum = rest.is_none() && file.enum_type.iter().any(|one| one.name() == first);
    is_service || is_enum || has_message(&file.message_type, name)
}

fn has_message(messages: &[DescriptorProto], name: &str) -> bool {
    let (first, rest) = match name.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    };
    let Some(message) = messages.iter().find(|message| message.name() == first) else {
        return false;
    };
    rest.is_none_or(|rest| {
        let is_field = message.field.iter().any(|field| field.name() == rest);
        let is_enum = message.enum_type.iter().any(|one| one.name() == rest);
        is_field || is_enum || has_message(&message.nested_type, rest)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
    use prost_types::field_descriptor_proto::Type;

    use super::*;
    use tidegate_codec::grpc::proto::health::{HealthCheckRequest, HealthCheckResponse};
    use tidegate_codec::grpc::proto::rate_limit::{
        CurrentLimit, DescriptorEntry, DescriptorStatus, HeaderValue, Quota, RateLimitDescriptor,
        RateLimitOverride, RateLimitRequest, RateLimitResponse, UInt64Value,
    };

    #[test]
    fn symbols_are_found_in_their_files() {
        #[rustfmt::skip]
        let table = [
            ("envoy.service.ratelimit.v3.RateLimitService",                  Some("envoy/service/ratelimit/v3/rls.proto")),
            ("envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",  Some("envoy/service/ratelimit/v3/rls.proto")),
            ("envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit",  Some("envoy/service/ratelimit/v3/rls.proto")),
            ("envoy.service.ratelimit.v3.RateLimitService.Other",            None),
            ("envoy.service.ratelimit.v3",                                   None),
            ("grpc.health.v1.Health",                                        Some("grpc/health/v1/health.proto")),
            ("google.protobuf.UInt64Value",                                  Some("google/protobuf/wrappers.proto")),
            ("grpc.reflection.v1alpha.ServerReflection",                     Some("grpc/reflection/v1alpha/reflection.proto")),
        ];
        for (symbol, expected) in table {
            let found = by_symbol(symbol).map(FileDescriptorProto::name);
            assert_eq!(found, expected, "{symbol}");
        }
    }

    #[test]
    fn the_messages_written_by_hand_have_the_fields_of_the_files() {
        let quota = Quota {
            requests: 1,
            valid_until: Some(prost_types::Timestamp::default()),
            id: "id".to_owned(),
        };
        let header = HeaderValue {
            key: "a".into(),
            value: "b".into(),
            raw_value: "c".into(),
        };
        let limit = CurrentLimit {
            requests_per_unit: 1,
            unit: 1,
            name: "name".to_owned(),
        };
        let status = DescriptorStatus {
            code: 1,
            current_limit: Some(limit.clone()),
            limit_remaining: 1,
            duration_until_reset: Some(prost_types::Duration::default()),
            quota: Some(quota.clone()),
        };
        let response = RateLimitResponse {
            overall_code: 1,
            statuses: vec![status.clone()],
            response_headers_to_add: vec![header.clone()],
            request_headers_to_add: vec![header.clone()],
            raw_body: "body".into(),
            dynamic_metadata: Some(prost_types::Struct::default()),
            quota: Some(quota.clone()),
        };
        let entry = DescriptorEntry {
            key: "a".to_owned(),
            value: "b".into(),
        };
        let brought = RateLimitOverride {
            requests_per_unit: 1,
            unit: 1,
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry.clone()],
            limit: Some(brought),
            hits_addend: Some(UInt64Value { value: 1 }),
            is_negative_hits: true,
        };
        let request = RateLimitRequest {
            domain: "web".to_owned(),
            descriptors: vec![descriptor.clone()],
            hits_addend: 1,
        };
        let service = "web".to_owned();
        let health = HealthCheckRequest { service }.encode_to_vec();
        #[rustfmt::skip]
        let table = [
            ("google.protobuf", "UInt64Value", UInt64Value { value: 1 }.encode_to_vec()),
            ("grpc.health.v1", "HealthCheckRequest", health),
            ("grpc.health.v1", "HealthCheckResponse", HealthCheckResponse { status: 1 }.encode_to_vec()),
            ("envoy.config.core.v3", "HeaderValue", header.encode_to_vec()),
            ("envoy.extensions.common.ratelimit.v3", "RateLimitDescriptor", descriptor.encode_to_vec()),
            ("envoy.extensions.common.ratelimit.v3", "RateLimitDescriptor.Entry", entry.encode_to_vec()),
            ("envoy.extensions.common.ratelimit.v3", "RateLimitDescriptor.RateLimitOverride", brought.encode_to_vec()),
            ("envoy.service.ratelimit.v3", "RateLimitRequest", request.encode_to_vec()),
            ("envoy.service.ratelimit.v3", "RateLimitResponse", response.encode_to_vec()),
            ("envoy.service.ratelimit.v3", "RateLimitResponse.RateLimit", limit.encode_to_vec()),
            ("envoy.service.ratelimit.v3", "RateLimitResponse.Quota", quota.encode_to_vec()),
            ("envoy.service.ratelimit.v3", "RateLimitResponse.DescriptorStatus", status.encode_to_vec()),
        ];
        for (package, name, bytes) in table {
            assert_eq!(written(&bytes), declared(package, name), "{package}.{name}");
        }
    }

    /// The fields of an encoded message: numbers, and whether they have a length.
    fn written(mut bytes: &[u8]) -> BTreeSet<(u32, bool)> {
        let mut fields = BTreeSet::new();
        while !bytes.is_empty() {
            let (number, kind) = decode_key(&mut bytes).unwrap();
            skip_field(kind, number, &mut bytes, DecodeContext::default()).unwrap();
            fields.insert((number, kind == WireType::LengthDelimited));
        }
        fields
    }

    /// The same of a message of the files.
    fn declared(package: &str, name: &str) -> BTreeSet<(u32, bool)> {
        let file = by_symbol(&format!("{package}.{name}")).unwrap();
        let mut messages = &file.message_type;
        let mut fields = &messages[0].field;
        for part in name.split('.') {
            let message = messages.iter().find(|one| one.name() == part).unwrap();
            (messages, fields) = (&message.nested_type, &message.field);
        }
        let has_length = |kind| matches!(kind, Type::String | Type::Bytes | Type::Message);
        let fields = fields.iter();
        fields
            .map(|field| (field.number().unsigned_abs(), has_length(field.r#type())))
            .collect()
    }

    #[test]
    fn every_file_comes_with_those_that_it_needs() {
        for file in FILES.iter() {
            for needed in &file.dependency {
                assert!(by_name(needed).is_some(), "{} needs {needed}", file.name());
            }
        }
    }
}
