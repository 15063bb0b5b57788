//! The problems of a document: collected while it is read, reported together.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::{Place, Source, Spot, excerpt};

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The document cannot be used.
    Error,
    /// The document can be used, but probably does not do what its author intends.
    Warning,
}

/// One problem: its position, its cause and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Which of several documents it is in, by its name.
    #[doc(hidden)]
    pub source: Option<Arc<str>>,
    /// Where it stands.
    pub place: Place,
    /// The rule that it is about, if there is one and it has an id.
    pub rule: Option<String>,
    /// The field, such as `match.path[1]`; empty for the document as a whole.
    pub field: String,
    /// The cause, and what would be accepted.
    pub message: String,
}

/// The problems of one document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    list: Vec<Problem>,
    errors: usize,
    /// Number of problems beyond those that are kept.
    more: usize,
    /// Which of several documents is read.
    source: Option<Arc<str>>,
}

/// How many problems are kept: more than a person reads.
const MAX_KEPT: usize = 500;
/// How many bytes of a field and of a message are kept: both may have text of the document, as long as that is.
const MAX_FIELD: usize = 512;
const MAX_MESSAGE: usize = 4_096;

impl Problems {
    /// None so far.
    #[doc(hidden)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the document that the problems added from now on are in.
    #[doc(hidden)]
    pub fn begin(&mut self, source: &Arc<str>) {
        self.source = Some(Arc::clone(source));
    }

    /// Adds something because of which the document cannot be used.
    #[doc(hidden)]
    pub fn error(&mut self, place: &Place, spot: &Spot, message: impl Into<String>) {
        self.add(Severity::Error, place, spot, message.into());
    }

    /// Adds something that should be looked at.
    #[doc(hidden)]
    pub fn warning(&mut self, place: &Place, spot: &Spot, message: impl Into<String>) {
        self.add(Severity::Warning, place, spot, message.into());
    }

    fn add(&mut self, severity: Severity, place: &Place, spot: &Spot, message: String) {
        self.errors += usize::from(severity == Severity::Error);
        if self.list.len() >= MAX_KEPT {
            // An error is never hidden behind warnings alone.
            let is_first_error = severity == Severity::Error && self.errors == 1;
            if !is_first_error {
                self.more += 1;
                return;
            }
        }
        self.list.push(Problem {
            severity,
            source: self.source.clone(),
            place: place.clone(),
            rule: spot.rule().map(str::to_owned),
            field: cut(spot.path().to_owned(), MAX_FIELD),
            message: cut(message, MAX_MESSAGE),
        });
    }

    /// Adds all problems of `others`.
    pub(crate) fn extend(&mut self, others: &Self) {
        self.list.extend_from_slice(&others.list);
        self.errors += others.errors;
        self.more += others.more;
    }

    /// Whether the document cannot be used.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Number of errors, including those that are not kept.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// Number of problems beyond those that are kept.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All problems, in the order of their positions.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// Those because of which the document cannot be used.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.list
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
    }

    /// The warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.list
            .iter()
            .filter(|problem| problem.severity == Severity::Warning)
    }

    /// Puts them in the order in which a reader of the files meets them.
    #[doc(hidden)]
    pub fn sort(&mut self) {
        let place = |problem: &Problem| match problem.place {
            Place::Text { line, column, .. } => (line, column),
            Place::Setting(_) | Place::Nowhere => (usize::MAX, 0),
        };
        self.list.sort_by(|one, other| {
            let files = one.source.cmp(&other.source);
            files.then_with(|| place(one).cmp(&place(other)))
        });
    }

    /// All problems as text for people, each with an excerpt of the source.
    pub fn render(&self, source: &Source) -> String {
        self.render_hiding(source, |_| false)
    }

    /// Like [`render`](Self::render), but without an excerpt where `hides` returns true, because the source has a
    /// secret there.
    #[doc(hidden)]
    pub fn render_hiding(&self, source: &Source, hides: impl Fn(&Problem) -> bool) -> String {
        self.render_of(|_| Some(source), hides)
    }

    /// Like [`render`](Self::render), for the problems of several files.
    #[doc(hidden)]
    pub fn render_all(&self, sources: &[Source]) -> String {
        let source_of = |problem: &Problem| {
            let name = problem.source.as_deref()?;
            sources.iter().find(|source| source.name == name)
        };
        self.render_of(source_of, |_| false)
    }

    fn render_of<'s>(
        &self,
        source_of: impl Fn(&Problem) -> Option<&'s Source>,
        hides: impl Fn(&Problem) -> bool,
    ) -> String {
        let mut text = String::new();
        for problem in &self.list {
            if !text.is_empty() {
                text.push('\n');
            }
            problem.render(source_of(problem), hides(problem), &mut text);
        }
        if self.more > 0 {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\nand {} more problems", self.more);
        }
        text
    }
}

/// A text with at most this many bytes.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

impl fmt::Display for Problems {
    /// All of them, without excerpts: [`render`](Problems::render) has those.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.render_hiding(&Source::new("rules", ""), |_| true);
        f.write_str(text.trim_end())
    }
}

impl std::error::Error for Problems {}

impl Problem {
    /// Writes the problem with an excerpt of the source.
    fn render(&self, source: Option<&Source>, is_hidden: bool, text: &mut String) {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let name = source.map_or("rules", |source| &source.name);
        let place = match &self.place {
            Place::Text { line, column, .. } => format!("{name}:{line}:{column}: "),
            Place::Setting(setting) => format!("{setting}: "),
            Place::Nowhere => format!("{name}: "),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{severity}: {place}{self}");
        if let Place::Text {
            line,
            column,
            width,
        } = self.place
            && let Some(source) = source.filter(|_| !is_hidden)
        {
            text.push_str(&excerpt::with_caret(&source.text, line, column, width));
        }
    }
}

impl fmt::Display for Problem {
    /// The rule, the field and the message, without the position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.rule, self.field.as_str()) {
            (Some(rule), "") => write!(f, "rule `{rule}`: ")?,
            (Some(rule), field) => write!(f, "rule `{rule}`, field `{field}`: ")?,
            (None, "") => {}
            (None, field) => write!(f, "field `{field}`: ")?,
        }
        f.write_str(&self.message)
    }
}
