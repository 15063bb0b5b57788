//! The formats by name, and the reader of one file.

use std::sync::Arc;

use super::json::JsonObject;
use super::line::{LineProblem, LineRequest};
use super::template::LineTemplate;
use super::times::TimeReader;
use super::{
    alb, caddy, cloudflare, columns, combined, envoy, envoy_json, gcp, haproxy, plain_json,
    recording, tidegate_access, traefik,
};
use crate::run::NamedValues;

/// A format of logs, in the order in which a file is compared with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatName {
    /// A recording of Tidegate.
    Recording,
    /// The access log of Tidegate.
    TidegateAccess,
    /// JSON of Caddy.
    Caddy,
    /// JSON of Traefik.
    Traefik,
    /// JSON of Envoy and Istio.
    EnvoyJson,
    /// Logpush of Cloudflare.
    Cloudflare,
    /// Load balancers of Google Cloud.
    Gcp,
    /// Application Load Balancers of AWS.
    Alb,
    /// The default text of Envoy.
    Envoy,
    /// The HTTP log of `HAProxy`.
    Haproxy,
    /// A combined line after a virtual host.
    Vhost,
    /// The combined log format.
    Combined,
    /// The common log format.
    Common,
    /// JSON objects.
    Json,
    /// Columns with commas.
    Csv,
    /// Columns with tabs.
    Tsv,
    /// By a `--log-format`.
    Template,
}

impl FormatName {
    /// Those that have a name on the command line, in the order in which they are tried.
    pub const NAMED: [Self; 16] = [
        Self::Recording,
        Self::TidegateAccess,
        Self::Caddy,
        Self::Traefik,
        Self::EnvoyJson,
        Self::Cloudflare,
        Self::Gcp,
        Self::Alb,
        Self::Envoy,
        Self::Haproxy,
        Self::Vhost,
        Self::Combined,
        Self::Common,
        Self::Json,
        Self::Csv,
        Self::Tsv,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recording => "tidegate",
            Self::TidegateAccess => "tidegate-access",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
            Self::EnvoyJson => "envoy-json",
            Self::Cloudflare => "cloudflare",
            Self::Gcp => "gcp",
            Self::Alb => "alb",
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy",
            Self::Vhost => "vhost",
            Self::Combined => "combined",
            Self::Common => "common",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Template => "log-format",
        }
    }

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|format| format.name() == name)
    }

    /// Whether its lines say how long a request took.
    pub(crate) fn has_durations(self) -> bool {
        match self {
            Self::TidegateAccess
            | Self::Caddy
            | Self::Traefik
            | Self::EnvoyJson
            | Self::Cloudflare
            | Self::Gcp
            | Self::Alb
            | Self::Envoy
            | Self::Haproxy => true,
            Self::Recording
            | Self::Vhost
            | Self::Combined
            | Self::Common
            | Self::Json
            | Self::Csv
            | Self::Tsv
            | Self::Template => false,
        }
    }
}

/// What a reader needs besides the line.
#[derive(Debug)]
pub(crate) struct ReadTerms {
    pub(crate) times: TimeReader,
    /// Whether any header of the request is of use.
    pub(crate) reads_headers: bool,
    /// Whether fields are looked up by their names.
    pub(crate) keeps_values: bool,
    /// The values that rules name, which recordings have as hashes.
    pub(crate) named: Arc<NamedValues>,
}

/// Reads the lines of one file.
#[derive(Debug)]
pub(crate) struct LineReader {
    pub(crate) format: FormatName,
    template: Option<LineTemplate>,
    /// The columns, once the first line was read.
    columns: Vec<String>,
    pub(crate) terms: ReadTerms,
}

impl LineReader {
    pub(crate) fn new(
        format: FormatName,
        template: Option<LineTemplate>,
        terms: ReadTerms,
    ) -> Self {
        Self {
            format,
            template,
            columns: Vec::new(),
            terms,
        }
    }

    /// Reads a line, without its line feed.
    pub(crate) fn read<'l>(&'l mut self, line: &'l [u8]) -> Result<LineRequest<'l>, LineProblem> {
        if line.trim_ascii().is_empty() {
            return Err(LineProblem::Ignored);
        }
        let terms = &mut self.terms;
        let json = |line: &'l [u8]| JsonObject::read(line.trim_ascii());
        match self.format {
            FormatName::Recording => recording::read(json(line)?, terms),
            FormatName::TidegateAccess => tidegate_access::read(json(line)?, terms),
            FormatName::Caddy => caddy::read(json(line)?, terms),
            FormatName::Traefik => traefik::read(json(line)?, terms),
            FormatName::EnvoyJson => envoy_json::read(json(line)?, terms),
            FormatName::Cloudflare => cloudflare::read(json(line)?, terms),
            FormatName::Gcp => gcp::read(json(line)?, terms),
            FormatName::Alb => alb::read(line, terms),
            FormatName::Envoy => envoy::read(line, terms),
            FormatName::Haproxy => haproxy::read(line, terms),
            FormatName::Vhost => combined::read(line, true, terms),
            FormatName::Combined | FormatName::Common => combined::read(line, false, terms),
            FormatName::Json => plain_json::read(json(line)?, terms),
            FormatName::Csv => columns::read(line, b',', &mut self.columns, terms),
            FormatName::Tsv => columns::read(line, b'\t', &mut self.columns, terms),
            FormatName::Template => match &self.template {
                Some(template) => template.read(line, terms),
                None => Err(LineProblem::Malformed("there is no `--log-format`")),
            },
        }
    }
}

/// A line of JSON that is not a request: another message of the same log, or something else.
pub(super) fn other_message(object: &JsonObject<'_>) -> LineProblem {
    if object.has("msg") || object.has("message") {
        return LineProblem::Ignored;
    }
    LineProblem::Malformed("it has not the members of this format")
}
