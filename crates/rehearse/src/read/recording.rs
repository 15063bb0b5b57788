//! Recordings of Tidegate: JSON lines with the attributes of each decided request.

use std::borrow::Cow;

use super::format::ReadTerms;
use super::json::{JsonObject, text_of};
use super::line::{LineProblem, LineRequest, LineValue, NO_TIME, RecordedPart};
use super::values::LineValues;

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
        ..LineRequest::default()
    };
    match (object.object("attributes"), object.objects("parts")) {
        (Some(attributes), None) => {
            read.attributes = attributes_of(&attributes).collect();
            read.cost = cost_of(&object)?;
        }
        (None, Some(parts)) => {
            for part in parts {
                let attributes = part.object("attributes");
                let attributes =
                    attributes.ok_or(LineProblem::Malformed("a part has no `attributes`"))?;
                read.parts.push(RecordedPart {
                    attributes: attributes_of(&attributes).collect(),
                    cost: cost_of(&part)?,
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

fn attributes_of<'a, 'l>(
    object: &'a JsonObject<'l>,
) -> impl Iterator<Item = (Cow<'l, str>, LineValue<'l>)> + use<'a, 'l> {
    object
        .iter()
        .filter_map(|(name, raw)| Some((name.clone(), text_of(raw)?)))
}

fn cost_of(object: &JsonObject<'_>) -> Result<Option<u64>, LineProblem> {
    let Some(cost) = object.text("cost") else {
        return Ok(None);
    };
    let cost = std::str::from_utf8(&cost)
        .ok()
        .and_then(|text| text.parse().ok());
    cost.map(Some)
        .ok_or(LineProblem::Malformed("its `cost` is not a whole number"))
}
