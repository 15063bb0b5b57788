//! Why the server would refuse a request, without the values that it has: they may be secrets.

use tidegate::AttributeError;
use tidegate::path::PathError;

/// The reason as reports show it.
pub(crate) fn reason_of(error: &AttributeError) -> String {
    match error {
        AttributeError::NotAnAddress { .. } => "attribute `ip` is not an address".to_owned(),
        AttributeError::Path(PathError::HiddenSlash) => "the path has an encoded slash".to_owned(),
        AttributeError::Path(PathError::BadEscape { .. }) => {
            "the path has a `%` without two hexadecimal digits after it".to_owned()
        }
        AttributeError::Path(PathError::Nul { .. }) => "the path has a NUL character".to_owned(),
        AttributeError::Path(_) => "the path is not UTF-8 once decoded".to_owned(),
        AttributeError::Host(_) => "the host is malformed".to_owned(),
        AttributeError::BadName { .. } => "a name cannot be that of an attribute".to_owned(),
        AttributeError::Twice { name } => format!("attribute `{name}` is given twice"),
        AttributeError::Contradiction { name } => {
            format!("it has two different values for `{name}`")
        }
        AttributeError::Address(_) => {
            "the address of the client is not known from its headers".to_owned()
        }
        AttributeError::TooLong { name, length } => {
            format!("attribute `{name}` is {length} bytes long")
        }
        AttributeError::TooMany => error.to_string(),
        _ => "the server would refuse it".to_owned(),
    }
}
