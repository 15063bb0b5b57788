//! From files to requests in the order of their times.
//!
//! `bytes.rs` decompresses, `lines.rs` cuts lines, `open.rs` finds the format of each file, `reading.rs` reads a file in
//! a thread of its own, `order.rs` sorts its requests, `merge.rs` merges files and spreads requests of one second.

mod bytes;
mod lines;
mod merge;
mod open;
mod order;
mod reading;

pub(crate) use merge::{MergedRequests, NextRequest, ReadFile};
pub use open::{LogInput, OpenLog, OpenLogError};
pub(crate) use open::{LogTraits, OpenLogs};
pub use reading::InputProgress;
pub(crate) use reading::{FileCounts, LineNoteKind};

use std::sync::Arc;

use jiff::tz::TimeZone;
use tidegate::{Micros, Timestamp};
use tidegate_identity::Identity;

use crate::describe::FieldMap;
use crate::read::{FormatName, LineTemplate, TimeFormat};

/// How logs are read.
#[derive(Clone)]
pub struct InputSettings {
    /// The format of all files; without one, each is found out.
    pub format: Option<FormatName>,
    /// The format of lines by `--log-format`.
    pub template: Option<LineTemplate>,
    /// What `--map` says.
    pub map: FieldMap,
    /// The attributes that every request has.
    pub constants: Vec<(String, String)>,
    /// The zone of times without one.
    pub zone: TimeZone,
    /// How times are written.
    pub time_format: Option<TimeFormat>,
    /// By how much a line may be out of order.
    pub reorder: Micros,
    /// Whether requests of one second are spread over it.
    pub spread: bool,
    /// Earlier requests are left out.
    pub since: Option<Timestamp>,
    /// So are those at this time and later ones.
    pub until: Option<Timestamp>,
    /// Whether reading ends with the first line that is malformed or late.
    pub strict: bool,
    /// How clients are identified.
    pub identity: Option<Arc<Identity>>,
}

impl Default for InputSettings {
    fn default() -> Self {
        Self {
            format: None,
            template: None,
            map: FieldMap::default(),
            constants: Vec::new(),
            zone: TimeZone::UTC,
            time_format: None,
            reorder: Micros::from_seconds(10),
            spread: false,
            since: None,
            until: None,
            strict: false,
            identity: None,
        }
    }
}
