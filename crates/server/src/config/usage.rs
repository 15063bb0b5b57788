//! The settings about language models: what is read of requests and answers, how they are estimated, and what they cost.

use std::path::{Path, PathBuf};

use http::{HeaderName, HeaderValue};
use tidegate::document::{Fields, Key, Kind, Node, Problems, Source, Spot, Value};
use tidegate_tower::DeniedBody;
use tidegate_usage::{
    EstimateSettings, FormName, MoneyUnit, OwnForm, PriceAmount, PriceList, PriceRow, UsageForm,
    UsageSetting,
};

use super::Overrides;
use super::read::{TakenField, number, setting, word};
use super::settings::{ESTIMATE, OWN_FORM, SET_HEADER};
use super::size::bytes_of;
use super::tokens::token_in_file;

/// How language models are read at the gateway. Validated.
#[derive(Debug, Clone)]
pub struct UsageConfig {
    /// How requests are estimated.
    pub estimate: EstimateSettings,
    /// The longest body that is read, in bytes.
    pub body_limit: usize,
    /// The words in which clients are denied.
    pub denied_body: DeniedBody,
    /// The file with the prices.
    pub prices_file: Option<PathBuf>,
    /// What 1 of the unit `money` is worth.
    pub money_unit: MoneyUnit,
}

const DENIED_BODIES: [(&str, DeniedBody); 5] = [
    ("form", DeniedBody::Form),
    ("problem", DeniedBody::Problem),
    ("openai", DeniedBody::Of(FormName::OpenAi)),
    ("anthropic", DeniedBody::Of(FormName::Anthropic)),
    ("gemini", DeniedBody::Of(FormName::Gemini)),
];

pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<UsageConfig> {
    let estimate = read_estimate(fields.take("estimate"), problems);
    let body_limit = setting(fields, "body_limit", body_limit, problems);
    let denied_body = word(fields, "denied_body", &DENIED_BODIES, problems);
    let prices_file = fields.text("prices_file", problems).map(PathBuf::from);
    let money_unit = setting(fields, "money_unit", parsed::<MoneyUnit>, problems);
    Some(UsageConfig {
        estimate: estimate?,
        body_limit: body_limit?,
        denied_body: denied_body?,
        prices_file,
        money_unit: money_unit?,
    })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn body_limit(text: &str) -> Result<usize, String> {
    let bytes = bytes_of(text).and_then(|bytes| usize::try_from(bytes).ok());
    match bytes {
        Some(bytes @ 1..) => Ok(bytes),
        _ => Err(format!(
            "`{text}` is not a size; write for example `8MiB` or `512KiB`"
        )),
    }
}

fn read_estimate(taken: TakenField<'_>, problems: &mut Problems) -> Option<EstimateSettings> {
    let mut estimate = EstimateSettings::default();
    let Some((spot, node)) = taken else {
        return Some(estimate);
    };
    let fields = Fields::new(node, spot, &ESTIMATE, problems)?;
    estimate.output = number(&fields, "output", problems)?;
    estimate.output_cap = setting(&fields, "output_cap", output_cap, problems)?;
    estimate.bytes_per_token = number(&fields, "bytes_per_token", problems)?;
    estimate.media = number(&fields, "media", problems)?;
    fields.done(problems);
    Some(estimate)
}

fn output_cap(text: &str) -> Result<Option<u64>, String> {
    match text.parse() {
        Ok(cap @ 1..=0xff_ffff_ffff) => Ok(Some(cap)),
        _ if text == "none" => Ok(None),
        _ => Err(format!(
            "`{text}` is not a number of tokens; write for example `8000`, or `none`"
        )),
    }
}

/// What is read of the requests of a route.
pub(super) fn usage(taken: TakenField<'_>, problems: &mut Problems) -> Option<UsageSetting> {
    let Some((spot, node)) = taken else {
        return Some(UsageSetting::Off);
    };
    if !matches!(node.value, Value::Map(_)) {
        let read = |name: &str| {
            UsageSetting::named(name).ok_or_else(|| {
                format!("`{name}` is unknown; expected one of `openai`, `anthropic`, `gemini`, `auto`, `off`, or a form of your own such as `{{input: [usage.in], output: [usage.out]}}`")
            })
        };
        return spot.parsed(node, read, problems);
    }
    let fields = Fields::new(node, spot.clone(), &OWN_FORM, problems)?;
    let mut form = OwnForm::default();
    let text = |text: &str| Ok::<_, String>(text.to_owned());
    form.maximum = fields.list("maximum", text, problems);
    form.times = fields.list("times", text, problems);
    form.input = fields.list("input", text, problems);
    form.cached = fields.list("cached", text, problems);
    form.output = fields.list("output", text, problems);
    fields.done(problems);
    match form.check() {
        Ok(()) => Some(UsageSetting::Form(UsageForm::own(&form))),
        Err(error) => spot.refused(node, error.to_string(), problems),
    }
}

/// The headers that are replaced for the servers of a route.
pub(super) fn set_headers(
    taken: TakenField<'_>,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Vec<(HeaderName, HeaderValue)> {
    let Some((spot, node)) = taken else {
        return Vec::new();
    };
    let entries = spot.entries(node, problems).iter();
    let headers = entries.filter_map(|entry| {
        let spot = spot.field(&entry.key);
        let Ok(name) = HeaderName::try_from(&*entry.key) else {
            let message = format!("`{}` is not the name of a header", entry.key);
            return spot.refused(&entry.value, message, problems);
        };
        let value = header_value(&entry.value, &spot, overrides, problems)?;
        Some((name, value))
    });
    headers.collect()
}

fn header_value(
    node: &Node,
    spot: &Spot,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<HeaderValue> {
    let fields = Fields::new(node, spot.clone(), &SET_HEADER, problems)?;
    let (file, variable) = (fields.take("file"), fields.take("env"));
    fields.done(problems);
    let of_text = |text: String| {
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| "the value cannot be sent in a header; remove line breaks".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    };
    match (file, variable) {
        (Some((spot, node)), None) => {
            spot.parsed(node, |path| token_in_file(path).and_then(of_text), problems)
        }
        (None, Some((spot, node))) => {
            let read = |name: &str| {
                let value = (overrides.environment)(name).unwrap_or_default();
                match value.trim() {
                    "" => Err(format!(
                        "the environment variable `{name}` is not set or blank"
                    )),
                    value => of_text(value.to_owned()),
                }
            };
            spot.parsed(node, read, problems)
        }
        _ => spot.refused(node, "give either a `file` or an `env`", problems),
    }
}

static PRICES: [Key; 1] = [Key::new(
    "prices",
    Kind::MapOf("", &Kind::Map(&PRICE)),
    "the prices of models, by patterns of their names",
)];

const AMOUNT: Kind = Kind::Text(r"^[0-9]+(\.[0-9]{1,9})?$");

static PRICE: [Key; 4] = [
    Key::new("input", AMOUNT, "of a million tokens of input").required(),
    Key::new("cached", AMOUNT, "of those that are read from a cache"),
    Key::new("cache_write", AMOUNT, "of those that are written to one"),
    Key::new("output", AMOUNT, "of a million tokens of output").required(),
];

/// The prices in a file.
pub(crate) fn read_prices(file: &Path, unit: MoneyUnit) -> Result<PriceList, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read the prices in `{}`: {error}", file.display()))?;
    let source = Source::new(file.display().to_string(), text);
    let mut problems = Problems::new();
    let prices = source
        .read(&mut problems)
        .and_then(|node| prices(&node, unit, &mut problems));
    match prices {
        Some(prices) if !problems.has_errors() => Ok(prices),
        _ => {
            problems.sort();
            Err(problems.render(&source))
        }
    }
}

fn prices(node: &Node, unit: MoneyUnit, problems: &mut Problems) -> Option<PriceList> {
    let fields = Fields::new(node, Spot::document(), &PRICES, problems)?;
    let table = fields.take("prices");
    fields.done(problems);
    let Some((spot, table)) = table else {
        let message = "a file with prices begins with `prices:`";
        return Spot::document().refused(node, message, problems);
    };
    let mut list = PriceList::new(unit);
    for entry in spot.entries(table, problems) {
        let spot = spot.field(&entry.key);
        let Some(fields) = Fields::new(&entry.value, spot.clone(), &PRICE, problems) else {
            continue;
        };
        let mut amount = |key| fields.parsed(key, str::parse::<PriceAmount>, problems);
        let (input, output) = (amount("input"), amount("output"));
        let (cached, cache_write) = (amount("cached"), amount("cache_write"));
        fields.done(problems);
        let (Some(input), Some(output)) = (input, output) else {
            let message = "a model needs the prices of a million tokens, `input` and `output`";
            problems.error(&entry.value.place, &spot, message);
            continue;
        };
        let mut row = PriceRow::new(input, output);
        row.cached = cached.unwrap_or(input);
        row.cache_write = cache_write.unwrap_or(input);
        list.add(&entry.key, row);
    }
    Some(list)
}
