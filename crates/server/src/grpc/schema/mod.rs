//! What can be called here, in the form that reflection tells: files of messages, enums and services.
//!
//! `files.rs` says what there is, `build.rs` makes descriptors of it.

mod build;
mod files;

use std::sync::LazyLock;

use prost_types::{DescriptorProto, FileDescriptorProto};

static FILES: LazyLock<Vec<FileDescriptorProto>> = LazyLock::new(files::all);

/// The file with this name.
pub(super) fn by_name(name: &str) -> Option<&'static FileDescriptorProto> {
    FILES.iter().find(|file| file.name() == name)
}

/// The file that says what a symbol is: a service, a method, a message or an enum.
pub(super) fn by_symbol(symbol: &str) -> Option<&'static FileDescriptorProto> {
    FILES.iter().find(|file| {
        let rest = symbol.strip_prefix(file.package());
        let name = rest.and_then(|rest| rest.strip_prefix('.'));
        name.is_some_and(|name| has(file, name))
    })
}

/// Whether a file says what a name in its package is.
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
    use super::*;

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
    fn every_file_comes_with_those_that_it_needs() {
        for file in FILES.iter() {
            for needed in &file.dependency {
                assert!(by_name(needed).is_some(), "{} needs {needed}", file.name());
            }
        }
    }
}
