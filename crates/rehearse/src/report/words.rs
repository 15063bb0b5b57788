//! Numbers and keys as people read them, on a page or on a terminal.

use serde_json::Value;

/// A number with its thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in percent: `12.50 %`.
pub fn share(part: u64, of: u64) -> String {
    if of == 0 {
        return "–".to_owned();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(of);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

/// A key of a report: `ip=203.0.113.7`. It is as clients sent it, and not escaped.
pub fn key_text(key: &Value) -> String {
    let Some(values) = key.as_object().filter(|values| !values.is_empty()) else {
        return "all clients".to_owned();
    };
    let pair =
        |(name, value): (&String, &Value)| format!("{name}={}", value.as_str().unwrap_or_default());
    values.iter().map(pair).collect::<Vec<_>>().join(" ")
}
