//! A form of the operator's own: where its requests and answers have their numbers.

use thiserror::Error;

/// The paths of a form. Each item is a path, or several as alternatives: `usage.in|usage.input`.
///
/// A path is keys separated by `.`. The items of `input`, `cached` and `output` are added up; the alternatives of one
/// item are one number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnForm {
    /// The most output that a request may ask for; the first item that is present counts.
    pub maximum: Vec<String>,
    /// How many answers a request asks for; the largest counts.
    pub times: Vec<String>,
    /// The tokens of the input.
    pub input: Vec<String>,
    /// Those of them that were read from a cache.
    pub cached: Vec<String>,
    /// The tokens of the output.
    pub output: Vec<String>,
}

/// The most items of a form.
pub(crate) const MAX_ITEMS: usize = 32;
const MAX_KEYS: usize = 16;
const MAX_KEY: usize = 128;

/// A form that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OwnFormError {
    /// There is nothing to read in answers.
    #[error("the form has neither `input` nor `output`: answers would have no usage")]
    Empty,
    /// A path has an empty key.
    #[error("`{0}` is not a path: expected keys separated by `.`, such as `usage.output_tokens`")]
    Path(String),
    /// A path is too long.
    #[error("`{0}` is too long: a path has at most 16 keys of at most 128 bytes")]
    Long(String),
    /// There are too many items.
    #[error("the form has {0} items: at most 32 are read")]
    Many(usize),
}

impl OwnForm {
    /// Checks the paths.
    pub fn check(&self) -> Result<(), OwnFormError> {
        let lists = [
            &self.maximum,
            &self.times,
            &self.input,
            &self.cached,
            &self.output,
        ];
        if self.input.is_empty() && self.output.is_empty() {
            return Err(OwnFormError::Empty);
        }
        let count = lists.iter().map(|list| list.len()).sum();
        if count > MAX_ITEMS {
            return Err(OwnFormError::Many(count));
        }
        for item in lists.into_iter().flatten() {
            for path in item.split('|') {
                check_path(path)?;
            }
        }
        Ok(())
    }
}

fn check_path(path: &str) -> Result<(), OwnFormError> {
    if path.split('.').any(str::is_empty) {
        return Err(OwnFormError::Path(path.to_owned()));
    }
    if path.split('.').count() > MAX_KEYS || path.split('.').any(|key| key.len() > MAX_KEY) {
        return Err(OwnFormError::Long(path.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(input: &[&str], output: &[&str]) -> OwnForm {
        let texts = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
        OwnForm {
            input: texts(input),
            output: texts(output),
            ..OwnForm::default()
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(form(&["a.b|c"], &["d"]).check(), Ok(()));
        assert_eq!(form(&[], &[]).check(), Err(OwnFormError::Empty));
        for path in ["", "a..b", ".a", "a|", "a||b"] {
            let error = form(&[path], &[]).check().unwrap_err();
            assert!(matches!(error, OwnFormError::Path(_)), "{path}");
        }
        let deep = ["a"; 17].join(".");
        let error = form(&[&deep], &[]).check().unwrap_err();
        assert_eq!(error, OwnFormError::Long(deep));
        let many = form(&["a"; 33], &[]).check();
        assert_eq!(many, Err(OwnFormError::Many(33)));
    }
}
