//! A common interface to the libraries that are compared, each called as its README shows.
//!
//! All have the same limit: room for a hundred million requests. So everything is admitted, which is the
//! longer path, the one that writes; and no key becomes idle during a run, so that the clean-up of idle keys
//! is not measured.

mod bare;
mod gate;
mod peers;
mod tidegate;

use std::time::Duration;

pub use bare::BareTable;
pub use gate::GateShape;

const BURST: u32 = 100_000_000;
const PER_DAY: u32 = 1_000;
const DAY: Duration = Duration::from_secs(86_400);

/// A library that can be asked about a key.
pub trait Contender: Sync {
    /// Charges one request to `key`.
    fn check(&self, key: &str) -> bool;

    /// Charges one request to the key of a number.
    fn check_number(&self, number: u64, key: &mut String) -> bool {
        use std::fmt::Write as _;
        key.clear();
        let _ = write!(key, "user:{number}");
        self.check(key)
    }
}

/// The library of this name, with room for so many keys.
pub fn by_name(name: &str, keys: u64) -> Option<Box<dyn Contender>> {
    if let Some(shape) = name.strip_prefix("gate:") {
        return Some(Box::new(gate::GateContender::new(GateShape::parse(shape)?)));
    }
    Some(match name {
        "tidegate" => Box::new(tidegate::Tidegate::new()),
        "governor" => Box::new(peers::Governor::new()),
        "throttlecrab" => Box::new(peers::Throttlecrab::new()),
        "limitador" => Box::new(peers::Limitador::new(keys)),
        "bare" => Box::new(BareTable::new()),
        _ => return None,
    })
}
