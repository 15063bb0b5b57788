//! The settings of logs, and of telemetry over OTLP.

use tidegate::document::{Fields, Problems, Value};

use super::read::{setting, word};
use super::{LogSettings, OtlpSettings, settings};
use crate::otlp::{OtlpService, parse_otlp_url};

pub(super) fn otlp(fields: &Fields<'_>, problems: &mut Problems) -> Option<OtlpSettings> {
    let url = fields.parsed("otlp", parse_otlp_url, problems);
    let sampling = setting(fields, "otlp_sampling", share, problems);
    let service = otlp_service(fields, problems);
    Some(OtlpSettings {
        url: url?,
        sampling: sampling?,
        service: service?,
    })
}

/// The name of the service, or a map with more.
fn otlp_service(fields: &Fields<'_>, problems: &mut Problems) -> Option<OtlpService> {
    let mut service = OtlpService::default();
    let Some((spot, node)) = fields.take("otlp_service") else {
        return Some(service);
    };
    if !matches!(node.value, Value::Map(_)) {
        spot.text(node, problems)?.clone_into(&mut service.name);
        return Some(service);
    }
    let parts = Fields::new(node, spot, &settings::OTLP_SERVICE, problems)?;
    if let Some(name) = parts.text("name", problems) {
        name.clone_into(&mut service.name);
    }
    service.namespace = parts.text("namespace", problems).map(str::to_owned);
    service.instance = parts.text("instance", problems).map(str::to_owned);
    parts.done(problems).then_some(service)
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let share = number.filter(|number| (0.0..=1.0).contains(number));
    share.ok_or_else(|| {
        format!("`{text}` is not a share; write a number from 0 to 1, such as `0.01`")
    })
}

pub(super) fn log(
    fields: &Fields<'_>,
    has_keys_of_envoy_ratelimit: bool,
    problems: &mut Problems,
) -> Option<LogSettings> {
    let formats = [("text", false), ("json", true)];
    let json = word(fields, "log_format", &formats, problems);
    let level = setting(fields, "log_level", log_level, problems);
    Some(LogSettings {
        json: json?,
        has_keys_of_envoy_ratelimit,
        level: level?,
    })
}

/// A level, or directives that each name a target and a level. Any other word would be read as a target and
/// silence everything else.
fn log_level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let refused = |part: &str| {
        format!(
            "`{part}` is not a log level; write one of `error`, `warn`, `info`, `debug`, `trace` and `off`, or levels by target such as `info,tidegate_server=debug`"
        )
    };
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    for directive in text.split(',').map(str::trim) {
        let level = directive
            .rsplit_once('=')
            .map_or(directive, |(_, level)| level.trim());
        if !is_level(level) {
            return Err(refused(directive));
        }
    }
    match text.parse::<tracing_subscriber::filter::Targets>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{}: {error}", refused(text))),
    }
}
