//! The names of units and codes in messages of Envoy.

use tidegate_codec::grpc::proto::rate_limit::{LimitCode, Unit};

const UNITS: [(&str, Unit); 8] = [
    ("UNKNOWN", Unit::Unknown),
    ("SECOND", Unit::Second),
    ("MINUTE", Unit::Minute),
    ("HOUR", Unit::Hour),
    ("DAY", Unit::Day),
    ("MONTH", Unit::Month),
    ("YEAR", Unit::Year),
    ("WEEK", Unit::Week),
];

/// The unit with this name.
pub(crate) fn unit_named(name: &str) -> Option<Unit> {
    let mut units = UNITS.iter();
    let found = units.find(|(known, _)| *known == name);
    found.map(|(_, unit)| *unit)
}

/// The name of a unit.
pub(crate) fn unit_name(unit: Unit) -> &'static str {
    let mut units = UNITS.iter();
    let found = units.find(|(_, known)| *known == unit);
    found.map_or("UNKNOWN", |(name, _)| name)
}

/// The name of a code.
pub(crate) fn code_name(code: LimitCode) -> &'static str {
    match code {
        LimitCode::Unknown => "UNKNOWN",
        LimitCode::Ok => "OK",
        LimitCode::OverLimit => "OVER_LIMIT",
    }
}
