//! Lines by a `--log-format`: literals with variables of nginx or operators of Envoy between them.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, LineValue};
use super::values::unescaped;
use super::{envoy_template, nginx_template};

/// The variables of a line, by their names.
pub(super) type TemplateValues<'l> = SmallVec<[(&'l str, LineValue<'l>); 12]>;

/// The text before the first variable, and each variable with the text after it.
pub(super) type TemplateParts = (Vec<u8>, Vec<(String, Vec<u8>)>);

/// The format of lines, as nginx or Envoy are given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineTemplate {
    /// Before the first variable.
    start: Vec<u8>,
    /// Each variable, and the literal after it.
    parts: Vec<(String, Vec<u8>)>,
    is_envoy: bool,
}

/// Why a `--log-format` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// It has no variables.
    #[error("it has neither variables such as `$remote_addr` nor operators such as `%START_TIME%`")]
    NoVariables,
    /// Two variables touch.
    #[error(
        "nothing is between `{first}` and `{second}`, so that the end of the first cannot be found"
    )]
    Adjacent {
        /// The first of them.
        first: String,
        /// The one after it.
        second: String,
    },
    /// No time can be read.
    #[error("it has no time; expected one of {expected}, or `--map time=…`")]
    NoTime {
        /// What would be a time.
        expected: &'static str,
    },
    /// An operator without an end.
    #[error("the operator that begins at `{start}` has no end")]
    Unfinished {
        /// How it begins.
        start: String,
    },
}

impl LineTemplate {
    /// The template that a text is.
    pub fn read_text(text: &str) -> Result<Self, TemplateError> {
        let is_envoy = envoy_template::is_written(text);
        let (start, parts) = if is_envoy {
            envoy_template::parts_of(text)?
        } else {
            nginx_template::parts_of(text)
        };
        if parts.is_empty() {
            return Err(TemplateError::NoVariables);
        }
        for pair in parts.windows(2) {
            if let [(first, literal), (second, _)] = pair
                && literal.is_empty()
            {
                let (first, second) = (first.clone(), second.clone());
                return Err(TemplateError::Adjacent { first, second });
            }
        }
        Ok(Self {
            start,
            parts,
            is_envoy,
        })
    }

    /// Whether a time can be read without `--map`.
    pub fn check_time(&self) -> Result<(), TemplateError> {
        let mut names = self.parts.iter().map(|(name, _)| name.as_str());
        let (has_time, expected) = if self.is_envoy {
            (names.any(envoy_template::is_time), "`%START_TIME%`")
        } else {
            (
                names.any(|name| nginx_template::TIMES.contains(&name)),
                "`$msec`, `$time_iso8601`, `$time_local`",
            )
        };
        has_time
            .then_some(())
            .ok_or(TemplateError::NoTime { expected })
    }

    /// Whether its lines say how long a request took.
    pub(crate) fn has_durations(&self) -> bool {
        let mut names = self.parts.iter().map(|(name, _)| name.as_str());
        names.any(|name| matches!(name, "request_time" | "DURATION"))
    }

    pub(super) fn read<'l>(
        &'l self,
        line: &'l [u8],
        terms: &mut ReadTerms,
    ) -> Result<LineRequest<'l>, LineProblem> {
        let values = self.values_of(line).ok_or(LineProblem::Malformed(
            "it is not in the format of `--log-format`",
        ))?;
        if self.is_envoy {
            envoy_template::describe(values, terms)
        } else {
            nginx_template::describe(values, terms)
        }
    }

    /// The value of each variable: it ends where the next literal begins.
    fn values_of<'l>(&'l self, line: &'l [u8]) -> Option<TemplateValues<'l>> {
        let mut rest = line.strip_prefix(&self.start[..])?;
        let mut values = TemplateValues::new();
        for (index, (name, literal)) in self.parts.iter().enumerate() {
            let is_last = index + 1 == self.parts.len();
            let end = match literal.as_slice() {
                [] => rest.len(),
                literal if is_last => rest
                    .len()
                    .checked_sub(literal.len())
                    .filter(|at| &rest[*at..] == literal)?,
                literal => {
                    let mut found = memchr::memmem::find_iter(rest, literal);
                    let is_escaped =
                        |at: usize| literal[0] == b'"' && at > 0 && rest[at - 1] == b'\\';
                    found.find(|at| !is_escaped(*at))?
                }
            };
            let value: LineValue<'l> = if self.is_envoy {
                Cow::Borrowed(&rest[..end])
            } else {
                unescaped(&rest[..end])
            };
            values.push((name.as_str(), value));
            rest = &rest[end + literal.len()..];
        }
        Some(values)
    }
}
