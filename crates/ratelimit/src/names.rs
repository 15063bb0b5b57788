//! The names of units and codes in messages of Envoy.

use tidegate_codec::grpc::proto::rate_limit::{LimitCode, Unit};

const UNITS: [Unit; 8] = [
    Unit::Unknown,
    Unit::Second,
    Unit::Minute,
    Unit::Hour,
    Unit::Day,
    Unit::Month,
    Unit::Year,
    Unit::Week,
];

/// The unit with this name.
pub(crate) fn unit_named(name: &str) -> Option<Unit> {
    UNITS.into_iter().find(|unit| unit.name() == name)
}

/// The name of a code.
pub(crate) fn code_name(code: LimitCode) -> &'static str {
    match code {
        LimitCode::Unknown => "UNKNOWN",
        LimitCode::Ok => "OK",
        LimitCode::OverLimit => "OVER_LIMIT",
    }
}
