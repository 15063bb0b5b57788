//! Rules as envoyproxy/ratelimit writes them: a tree of descriptors below a domain.
//!
//! Every descriptor with a limit becomes a [`Rule`](super::Rule), so that it is counted, measured and
//! stored like any other; the tree only says which rule a request's descriptor means. `read.rs` reads
//! the file, `spelling.rs` its YAML, `read_grant.rs` its limits; `tree.rs` finds the rule, `counter.rs`
//! names its counters, `stat.rs` its stats; `overlay.rs` changes how limits are counted, `open_entries.rs` says which
//! client an override is for.

mod counter;
mod descriptor;
mod explain;
mod identity;
mod open_entries;
mod overlay;
mod places;
mod read;
mod read_grant;
mod rule_set;
mod spelling;
mod stat;
mod tree;
mod units;
mod wildcard;

pub(super) use descriptor::Descriptor;
pub(super) use overlay::overlaid;
pub use overlay::{CurrentOverlay, Overlay};
pub(super) use places::ignored;
pub use read::DescriptorSource;
pub(super) use read::{are_written, read, read_all};
pub(super) use read_grant::UNITS;
pub use stat::StatPath;
pub(super) use tree::Descriptors;
pub use units::Units;

use crate::attributes::Attributes;

/// The attribute with the domain of a descriptor.
const DOMAIN: &str = "domain";

/// The entries of a descriptor, in their order: all that is known, but for the domain.
fn entries<'d>(attributes: &'d Attributes<'_>) -> impl Iterator<Item = (&'d str, &'d str)> {
    let mut has_domain = false;
    attributes.entries().filter(move |(name, _)| {
        let is_domain = *name == DOMAIN && !has_domain;
        has_domain |= is_domain;
        !is_domain
    })
}
