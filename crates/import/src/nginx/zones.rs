//! Reads `limit_req_zone` and `limit_conn_zone`, and what stands at the level of `http` and has no rule.

use super::syntax::Directive;
use crate::model::{LimitModel, LimitZone, ZoneRate};
use crate::report::ImportReport;

pub(super) fn read(http: &[Directive], model: &mut LimitModel, report: &mut ImportReport) {
    for directive in http {
        match directive.name.as_str() {
            "limit_req_zone" | "limit_conn_zone" => match zone(directive) {
                Ok(zone) if is_known(&zone, model) => report.left_out(
                    directive.at,
                    format!("a second zone with the name `{}`", zone.name),
                ),
                Ok(zone) => model.zones.push(zone),
                Err(reason) => report.left_out(directive.at, reason),
            },
            "limit_zone" => report.left_out(
                directive.at,
                "`limit_zone` was removed from nginx; write `limit_conn_zone`",
            ),
            _ => {}
        }
    }
}

fn is_known(zone: &LimitZone, model: &LimitModel) -> bool {
    let mut known = model.zones.iter();
    known.any(|known| known.name == zone.name && known.rate.is_some() == zone.rate.is_some())
}

fn zone(directive: &Directive) -> Result<LimitZone, String> {
    let name = &directive.name;
    let is_rate = name == "limit_req_zone";
    let Some((key, parameters)) = directive.words.split_first() else {
        return Err(format!("`{name}` has no key"));
    };
    let mut named = None;
    let mut rate = ZoneRate {
        count: 1,
        is_per_minute: false,
    };
    for parameter in parameters {
        if let Some(zone) = parameter.strip_prefix("zone=") {
            named = Some(zone.split(':').next().unwrap_or(zone).to_owned());
        } else if let Some(text) = parameter.strip_prefix("rate=").filter(|_| is_rate) {
            rate = read_rate(text).ok_or_else(|| {
                format!("`{text}` is not a rate such as `10r/s` or `30r/m`, from 1 to a billion")
            })?;
        } else if parameter != "sync" {
            return Err(format!("`{name}` has no parameter `{parameter}`"));
        }
    }
    let named = named.filter(|name| !name.is_empty());
    let zone_name = named.ok_or_else(|| format!("`{name}` has no `zone=NAME:SIZE`"))?;
    Ok(LimitZone {
        name: zone_name,
        key: key.clone(),
        rate: is_rate.then_some(rate),
        text: format!("{name} {}", directive.words.join(" ")),
        at: directive.at,
    })
}

/// The most requests that a limit of a rule may have.
const MOST: u64 = 1_000_000_000;

fn read_rate(text: &str) -> Option<ZoneRate> {
    let (digits, is_per_minute) = match text.strip_suffix("r/m") {
        Some(digits) => (digits, true),
        None => (text.strip_suffix("r/s").unwrap_or(text), false),
    };
    let count = digits.parse().ok()?;
    (1..=MOST).contains(&count).then_some(ZoneRate {
        count,
        is_per_minute,
    })
}
