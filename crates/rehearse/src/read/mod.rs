//! Readers of logs, without I/O: a line becomes what is known of a request. One file for each format.
//!
//! `line.rs` has what a line says, `values.rs` its fields by name, `times.rs` its time, `format.rs` the formats by name,
//! `sniff.rs` finds out which one a file has. What a request's attributes are is decided in `describe/`.

mod alb;
mod caddy;
mod cloudflare;
mod columns;
mod combined;
mod envoy;
mod envoy_json;
mod envoy_template;
mod exact;
mod format;
mod gcp;
mod haproxy;
mod json;
mod line;
mod nginx_template;
mod plain_json;
mod recording;
mod sniff;
mod template;
mod tidegate_access;
mod times;
mod traefik;
mod values;

pub(crate) use exact::ExactTime;
pub use format::FormatName;
pub(crate) use format::{LineReader, ReadTerms};
pub(crate) use line::{LineProblem, LineRequest};
pub(crate) use recording::RecordingMark;
pub(crate) use sniff::{SNIFFED_LINES, Sniffed, sniff};
pub use template::{LineTemplate, TemplateError};
pub(crate) use times::TimeReader;
pub use times::{TimeFormat, read_instant, read_zone};
pub(crate) use values::{FieldSource, is_absent};
