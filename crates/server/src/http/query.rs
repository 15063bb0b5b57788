//! The parameters of a call that takes some in its query.

use http::request::Parts;
use percent_encoding::percent_decode_str;
use tidegate::printable::escaped;

use crate::problem::HttpProblem;

/// How much of a parameter's name an error shows, in characters.
const SHOWN: usize = 64;

/// The values of the named parameters. An unknown parameter is an error, and so is one that is given twice.
pub(super) fn parameters<const N: usize>(
    parts: &Parts,
    names: [&str; N],
) -> Result<[Option<String>; N], HttpProblem> {
    let mut values = [const { None }; N];
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        let Some(index) = names.iter().position(|known| *known == name) else {
            let name: String = escaped(&name).chars().take(SHOWN).collect();
            let known = match names.len() {
                0 => "this call has none".to_owned(),
                _ => format!("known: `{}`", names.join("`, `")),
            };
            let detail = format!("unknown parameter `{name}`; {known}");
            return Err(HttpProblem::bad_request(detail));
        };
        if values[index].replace(value).is_some() {
            let detail = format!("parameter `{name}` is given twice; give it once");
            return Err(HttpProblem::bad_request(detail));
        }
    }
    Ok(values)
}

fn decoded(text: &str) -> Result<String, HttpProblem> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8();
    let decoded = decoded.map(std::borrow::Cow::into_owned);
    decoded.map_err(|_| HttpProblem::bad_request("the query is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn read(query: &str) -> Option<[Option<String>; 2]> {
        let uri = format!("/v1/rules/diff{query}");
        let (parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
        parameters(&parts, ["from", "to"]).ok()
    }

    #[test]
    fn parameters_by_hand() {
        let some = |text: &str| Some(text.to_owned());
        #[rustfmt::skip]
        let table = [
            ("",                    Some([None, None])),
            ("?",                   Some([None, None])),
            ("?to=5&from=3",        Some([some("3"), some("5")])),
            ("?f%72om=%33&",        Some([some("3"), None])),
            ("?to=a+b",             Some([None, some("a b")])),
            ("?to",                 Some([None, some("")])),
            ("?from=1&from=1",      None),
            ("?From=1",             None),
            ("?from=1&x",           None),
            ("?from=%ff",           None),
        ];
        for (query, expected) in table {
            assert_eq!(read(query), expected, "{query}");
        }
    }
}
