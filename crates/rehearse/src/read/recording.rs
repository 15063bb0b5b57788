//! Recordings of Tidegate: JSON lines with the attributes of each decided request.

use std::borrow::Cow;

use serde::Deserialize;
use tidegate::Costs;

use super::format::ReadTerms;
use super::json::{JsonObject, text_of};
use super::line::{LineProblem, LineRequest, LineValue, NO_TIME, RecordedPart};
use super::values::LineValues;
use crate::run::NamedValues;

pub(super) fn read<'l>(
    object: JsonObject<'l>,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let is_mark = |name: &str| object.has(name) && !object.has("t");
    if ["tidegate_record", "rules_version", "lost"]
        .into_iter()
        .any(is_mark)
    {
        return Err(LineProblem::Ignored);
    }
    let time = object
        .text("t")
        .ok_or(LineProblem::Malformed("it has no `t`"))?;
    let mut read = LineRequest {
        time: Some(terms.times.read(&time).ok_or(NO_TIME)?),
        is_recorded: true,
        ..LineRequest::default()
    };
    match (object.object("attributes"), object.objects("parts")) {
        (Some(attributes), None) => {
            read.attributes = attributes_of(&attributes, &terms.named).collect();
            read.costs = costs_of(&object)?;
        }
        (None, Some(parts)) => {
            for part in parts {
                let attributes = part.object("attributes");
                let attributes =
                    attributes.ok_or(LineProblem::Malformed("a part has no `attributes`"))?;
                read.parts.push(RecordedPart {
                    attributes: attributes_of(&attributes, &terms.named).collect(),
                    costs: costs_of(&part)?,
                });
            }
        }
        _ => {
            return Err(LineProblem::Malformed(
                "it has not one of `attributes` and `parts`",
            ));
        }
    }
    read.values = LineValues::Json(object);
    Ok(read)
}

/// What a line of a recording says that is no decision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordingMark {
    /// So many lines are missing here.
    Lost(u64),
    /// From here on it has a share of the clients, by these attributes.
    Sampled(Vec<String>),
}

/// The members of these lines that matter.
#[derive(Deserialize)]
struct WrittenMark {
    lost: Option<u64>,
    tidegate_record: Option<u64>,
    sample: Option<f64>,
    sample_by: Option<Vec<String>>,
}

impl RecordingMark {
    /// What this line says; none if that changes nothing.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let mark: WrittenMark = serde_json::from_slice(line).ok()?;
        if let Some(lines) = mark.lost {
            return Some(Self::Lost(lines));
        }
        mark.tidegate_record?;
        mark.sample
            .filter(|share| *share < 1.0)
            .map(|_| Self::Sampled(mark.sample_by.unwrap_or_default()))
    }
}

fn texts_of<'a, 'l>(
    object: &'a JsonObject<'l>,
) -> impl Iterator<Item = (Cow<'l, str>, LineValue<'l>)> + use<'a, 'l> {
    object
        .iter()
        .filter_map(|(name, raw)| Some((name.clone(), text_of(raw)?)))
}

/// Attributes, with the values that the rules name in place of their hashes.
fn attributes_of<'a, 'l>(
    object: &'a JsonObject<'l>,
    named: &'a NamedValues,
) -> impl Iterator<Item = (Cow<'l, str>, LineValue<'l>)> + use<'a, 'l> {
    texts_of(object).map(|(name, value)| {
        let value = match named.value(&name, &value) {
            Some(known) => Cow::Owned(known.as_bytes().to_vec()),
            None => value,
        };
        (name, value)
    })
}

fn costs_of(object: &JsonObject<'_>) -> Result<Option<Costs>, LineProblem> {
    let number = |text: LineValue<'_>| std::str::from_utf8(&text).ok()?.parse::<u64>().ok();
    if let Some(costs) = object.object("costs") {
        let units = texts_of(&costs).map(|(unit, cost)| Some((unit, number(cost)?)));
        let units: Option<Vec<(Cow<'_, str>, u64)>> = units.collect();
        let costs = units.and_then(|units| {
            Costs::by_unit(units.iter().map(|(unit, cost)| (&**unit, *cost))).ok()
        });
        return costs.map(Some).ok_or(LineProblem::Malformed(
            "its `costs` are not whole numbers by unit",
        ));
    }
    let Some(cost) = object.text("cost") else {
        return Ok(None);
    };
    number(cost)
        .map(|cost| Some(Costs::from(cost)))
        .ok_or(LineProblem::Malformed("its `cost` is not a whole number"))
}
