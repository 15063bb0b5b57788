//! Times as numbers and as text.

pub(crate) use tidegate::rules::write_time as date_time;

/// Microseconds as seconds, for JSON and metrics.
#[expect(
    clippy::cast_precision_loss,
    reason = "times are below 2^53 microseconds"
)]
pub(crate) fn decimal_seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A time as microseconds since 1970, for serde.
pub(crate) mod micros {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use tidegate::Timestamp;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(crate) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(at.as_micros())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        u64::deserialize(from).map(Timestamp::from_micros)
    }
}
