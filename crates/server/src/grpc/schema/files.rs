//! The files that reflection tells of.

use prost_types::FileDescriptorProto;

use super::build::{file, map_entry, message, method, numbers, service, with};

const DURATION: &str = "google/protobuf/duration.proto";
const STRUCT: &str = "google/protobuf/struct.proto";
const TIMESTAMP: &str = "google/protobuf/timestamp.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";
const CORE: &str = "envoy/config/core/v3/base.proto";
const DESCRIPTORS: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";

pub(super) fn all() -> Vec<FileDescriptorProto> {
    let mut files = vec![
        span(DURATION, "Duration"),
        span(TIMESTAMP, "Timestamp"),
        structs(),
        wrappers(),
        core(),
        unit(),
        descriptors(),
        rate_limit_service(),
        health(),
    ];
    files.extend(["v1", "v1alpha"].map(reflection));
    files
}

/// The units of time, whose numbers are the same in both enums.
const UNITS: [(&str, i32); 8] = [
    ("UNKNOWN", 0),
    ("SECOND", 1),
    ("MINUTE", 2),
    ("HOUR", 3),
    ("DAY", 4),
    ("MONTH", 5),
    ("YEAR", 6),
    ("WEEK", 7),
];

fn span(name: &str, message_name: &str) -> FileDescriptorProto {
    FileDescriptorProto {
        message_type: vec![message(
            message_name,
            &["int64 seconds = 1", "int32 nanos = 2"],
        )],
        ..file(name, "google.protobuf", &[])
    }
}

fn structs() -> FileDescriptorProto {
    let fields = "repeated .google.protobuf.Struct.FieldsEntry fields = 1";
    let entry = map_entry("FieldsEntry", "string", ".google.protobuf.Value");
    FileDescriptorProto {
        message_type: vec![
            with(message("Struct", &[fields]), vec![entry], vec![]),
            message(
                "Value",
                &[
                    "oneof kind enum .google.protobuf.NullValue null_value = 1",
                    "oneof kind double number_value = 2",
                    "oneof kind string string_value = 3",
                    "oneof kind bool bool_value = 4",
                    "oneof kind .google.protobuf.Struct struct_value = 5",
                    "oneof kind .google.protobuf.ListValue list_value = 6",
                ],
            ),
            message("ListValue", &["repeated .google.protobuf.Value values = 1"]),
        ],
        enum_type: vec![numbers("NullValue", &[("NULL_VALUE", 0)])],
        ..file(STRUCT, "google.protobuf", &[])
    }
}

fn wrappers() -> FileDescriptorProto {
    let wrapped = [
        ("DoubleValue", "double value = 1"),
        ("FloatValue", "float value = 1"),
        ("Int64Value", "int64 value = 1"),
        ("UInt64Value", "uint64 value = 1"),
        ("Int32Value", "int32 value = 1"),
        ("UInt32Value", "uint32 value = 1"),
        ("BoolValue", "bool value = 1"),
        ("StringValue", "string value = 1"),
        ("BytesValue", "bytes value = 1"),
    ];
    FileDescriptorProto {
        message_type: wrapped.map(|(name, field)| message(name, &[field])).into(),
        ..file(WRAPPERS, "google.protobuf", &[])
    }
}

/// Of this file only what is needed here.
fn core() -> FileDescriptorProto {
    let fields = ["string key = 1", "string value = 2", "bytes raw_value = 3"];
    FileDescriptorProto {
        message_type: vec![message("HeaderValue", &fields)],
        ..file(CORE, "envoy.config.core.v3", &[])
    }
}

fn unit() -> FileDescriptorProto {
    FileDescriptorProto {
        enum_type: vec![numbers("RateLimitUnit", &UNITS)],
        ..file(UNIT, "envoy.type.v3", &[])
    }
}

/// Of this file only what is needed here.
fn descriptors() -> FileDescriptorProto {
    let entry = message("Entry", &["string key = 1", "string value = 2"]);
    let limit = message(
        "RateLimitOverride",
        &[
            "uint32 requests_per_unit = 1",
            "enum .envoy.type.v3.RateLimitUnit unit = 2",
        ],
    );
    let descriptor = message(
        "RateLimitDescriptor",
        &[
            "repeated .envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry entries = 1",
            ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride limit = 2",
            ".google.protobuf.UInt64Value hits_addend = 3",
            "bool is_negative_hits = 4",
        ],
    );
    FileDescriptorProto {
        message_type: vec![with(descriptor, vec![entry, limit], vec![])],
        ..file(
            DESCRIPTORS,
            "envoy.extensions.common.ratelimit.v3",
            &[UNIT, WRAPPERS],
        )
    }
}

fn rate_limit_service() -> FileDescriptorProto {
    let request = message(
        "RateLimitRequest",
        &[
            "string domain = 1",
            "repeated .envoy.extensions.common.ratelimit.v3.RateLimitDescriptor descriptors = 2",
            "uint32 hits_addend = 3",
        ],
    );
    let limit = message(
        "RateLimit",
        &[
            "uint32 requests_per_unit = 1",
            "enum .envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit unit = 2",
            "string name = 3",
        ],
    );
    let limit = with(limit, vec![], vec![numbers("Unit", &UNITS)]);
    let quota = message(
        "Quota",
        &[
            "uint32 requests = 1",
            "oneof expiration_specifier .google.protobuf.Timestamp valid_until = 2",
            "string id = 3",
        ],
    );
    let status = message(
        "DescriptorStatus",
        &[
            "enum .envoy.service.ratelimit.v3.RateLimitResponse.Code code = 1",
            ".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit current_limit = 2",
            "uint32 limit_remaining = 3",
            ".google.protobuf.Duration duration_until_reset = 4",
            ".envoy.service.ratelimit.v3.RateLimitResponse.Quota quota = 5",
        ],
    );
    let response = message(
        "RateLimitResponse",
        &[
            "enum .envoy.service.ratelimit.v3.RateLimitResponse.Code overall_code = 1",
            "repeated .envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus statuses = 2",
            "repeated .envoy.config.core.v3.HeaderValue response_headers_to_add = 3",
            "repeated .envoy.config.core.v3.HeaderValue request_headers_to_add = 4",
            "bytes raw_body = 5",
            ".google.protobuf.Struct dynamic_metadata = 6",
            ".envoy.service.ratelimit.v3.RateLimitResponse.Quota quota = 7",
        ],
    );
    let code = numbers("Code", &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)]);
    let should_rate_limit = method(
        "ShouldRateLimit",
        ".envoy.service.ratelimit.v3.RateLimitRequest",
        ".envoy.service.ratelimit.v3.RateLimitResponse",
    );
    FileDescriptorProto {
        message_type: vec![
            request,
            with(response, vec![limit, quota, status], vec![code]),
        ],
        service: vec![service("RateLimitService", vec![should_rate_limit])],
        ..file(
            "envoy/service/ratelimit/v3/rls.proto",
            "envoy.service.ratelimit.v3",
            &[CORE, DESCRIPTORS, DURATION, STRUCT, TIMESTAMP],
        )
    }
}

fn health() -> FileDescriptorProto {
    let statuses = numbers(
        "ServingStatus",
        &[
            ("UNKNOWN", 0),
            ("SERVING", 1),
            ("NOT_SERVING", 2),
            ("SERVICE_UNKNOWN", 3),
        ],
    );
    let response = message(
        "HealthCheckResponse",
        &["enum .grpc.health.v1.HealthCheckResponse.ServingStatus status = 1"],
    );
    let (takes, gives) = (
        ".grpc.health.v1.HealthCheckRequest",
        ".grpc.health.v1.HealthCheckResponse",
    );
    let methods = vec![
        method("Check", takes, gives),
        method("Watch", takes, &format!("stream {gives}")),
    ];
    FileDescriptorProto {
        message_type: vec![
            message("HealthCheckRequest", &["string service = 1"]),
            with(response, vec![], vec![statuses]),
        ],
        service: vec![service("Health", methods)],
        ..file("grpc/health/v1/health.proto", "grpc.health.v1", &[])
    }
}

/// Both versions of reflection say the same, in packages of their own.
fn reflection(version: &str) -> FileDescriptorProto {
    let package = format!("grpc.reflection.{version}");
    let of = |name: &str, fields: &[&str]| {
        let fields: Vec<String> = fields
            .iter()
            .map(|field| field.replace("{p}", &format!(".{package}")))
            .collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        message(name, &fields)
    };
    let messages = vec![
        of(
            "ServerReflectionRequest",
            &[
                "string host = 1",
                "oneof message_request string file_by_filename = 3",
                "oneof message_request string file_containing_symbol = 4",
                "oneof message_request {p}.ExtensionRequest file_containing_extension = 5",
                "oneof message_request string all_extension_numbers_of_type = 6",
                "oneof message_request string list_services = 7",
            ],
        ),
        of(
            "ExtensionRequest",
            &["string containing_type = 1", "int32 extension_number = 2"],
        ),
        of(
            "ServerReflectionResponse",
            &[
                "string valid_host = 1",
                "{p}.ServerReflectionRequest original_request = 2",
                "oneof message_response {p}.FileDescriptorResponse file_descriptor_response = 4",
                "oneof message_response {p}.ExtensionNumberResponse all_extension_numbers_response = 5",
                "oneof message_response {p}.ListServiceResponse list_services_response = 6",
                "oneof message_response {p}.ErrorResponse error_response = 7",
            ],
        ),
        of(
            "FileDescriptorResponse",
            &["repeated bytes file_descriptor_proto = 1"],
        ),
        of(
            "ExtensionNumberResponse",
            &[
                "string base_type_name = 1",
                "repeated int32 extension_number = 2",
            ],
        ),
        of(
            "ListServiceResponse",
            &["repeated {p}.ServiceResponse service = 1"],
        ),
        of("ServiceResponse", &["string name = 1"]),
        of(
            "ErrorResponse",
            &["int32 error_code = 1", "string error_message = 2"],
        ),
    ];
    let info = method(
        "ServerReflectionInfo",
        &format!("stream .{package}.ServerReflectionRequest"),
        &format!("stream .{package}.ServerReflectionResponse"),
    );
    FileDescriptorProto {
        message_type: messages,
        service: vec![service("ServerReflection", vec![info])],
        ..file(
            &format!("grpc/reflection/{version}/reflection.proto"),
            &package,
            &[],
        )
    }
}
