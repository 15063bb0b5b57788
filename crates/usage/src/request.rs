//! What a request to a language model says of its cost.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::estimate::{EstimateSettings, TokenEstimate};
use crate::form::{FormName, ModelEndpoint, UsageForm, model_in_path};
use crate::json::{JsonScanner, JsonSink, JsonValue, MAX_NUMBER, NodeId, ROOT, WholeNumber};
use crate::media::{FoundMedia, LONGEST_TEXT};
use crate::request_paths::RequestPaths;

/// What the body and the path of a request say.
///
/// Of a body that is not valid JSON, what comes before the error is read, and all of it counts as text: servers differ
/// in what they accept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelRequest {
    /// The model: the one in the body, else the one that the path names. Where the provider's own paths name it, as
    /// Azure's and Gemini's do, that one, because the server ignores the body's.
    pub model: Option<String>,
    /// The most output that one answer may have.
    pub maximum: Option<u64>,
    /// How many answers are asked for, at least 1.
    pub times: u64,
    /// Whether the answer is streamed, if the body says so.
    pub is_stream: bool,
    /// Whether the answer has no output.
    pub is_embedding: bool,
    /// How the body is changed so that its stream has usage.
    pub include_usage: Option<BodyEdit>,
    length: usize,
    media: FoundMedia,
}

/// A change of a body: a range of it is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyEdit {
    /// What is replaced; empty where text is inserted.
    pub range: Range<usize>,
    /// The new text.
    pub text: &'static str,
}

impl BodyEdit {
    /// The body with the change. Every other byte stays as it is.
    pub fn apply(&self, body: &Bytes) -> Bytes {
        let mut edited = BytesMut::with_capacity(body.len() + self.text.len());
        edited.extend_from_slice(&body[..self.range.start]);
        edited.extend_from_slice(self.text.as_bytes());
        edited.extend_from_slice(&body[self.range.end..]);
        edited.freeze()
    }
}

impl ModelRequest {
    /// Reads the body of a POST to a path in its normal form. `None` if the body does not begin with `{`, after white
    /// space: then it is not a request to a model.
    ///
    /// ```
    /// use tidegate_usage::{EstimateSettings, ModelRequest, UsageForm};
    ///
    /// let body = br#"{"model": "gpt-5-mini", "max_tokens": 40, "messages": []}"#;
    /// let request = ModelRequest::read(&UsageForm::openai(), "/v1/chat/completions", body).unwrap();
    /// assert_eq!(request.model.as_deref(), Some("gpt-5-mini"));
    /// let estimate = request.estimate(&EstimateSettings::default());
    /// assert_eq!((estimate.input(), estimate.output()), (15, 40));
    /// ```
    pub fn read(form: &UsageForm, path: &str, body: &[u8]) -> Option<Self> {
        begins_with_object(body).then_some(())?;
        let text = body.strip_prefix(BOM).unwrap_or(body);
        let mut sink = RequestSink::new(&form.request);
        let mut scanner = JsonScanner::new();
        scanner.feed(text, &form.request.paths, &mut sink);
        let endpoint = ModelEndpoint::of(path);
        let is_whole = scanner.is_done();
        let in_path = model_in_path(form.name, path);
        let is_bound = in_path.is_some_and(|in_path| in_path.is_binding);
        let in_body = sink.model.take().filter(|_| !is_bound);
        let model = in_body.or(in_path.map(|in_path| in_path.name.to_owned()));
        let model = match form.name {
            FormName::Gemini => model.map(without_collection),
            _ => model,
        };
        let skipped = body.len() - text.len();
        let is_openai = form.name == FormName::OpenAi;
        let has_options = is_openai && endpoint.is_some_and(ModelEndpoint::has_stream_options);
        let include_usage = (is_whole && has_options && sink.is_stream)
            .then(|| sink.include_usage(skipped))
            .flatten();
        let mut media = FoundMedia::default();
        if is_whole {
            for span in sink.long_strings.drain(..) {
                media.add(&text[span]);
            }
        }
        Some(Self {
            model,
            maximum: sink.maximum(),
            times: sink.times.max(1),
            is_stream: sink.is_stream,
            is_embedding: endpoint.is_some_and(ModelEndpoint::is_embedding),
            include_usage,
            length: body.len(),
            media,
        })
    }

    /// What the request may cost.
    pub fn estimate(&self, settings: &EstimateSettings) -> TokenEstimate {
        let text = (self.length - self.media.bytes) as u64;
        let text = text.div_ceil(settings.bytes_per_token.max(1));
        let media = self.media.count.saturating_mul(settings.media);
        let cap = settings.output_cap.unwrap_or(u64::MAX);
        let output = match self.maximum {
            _ if self.is_embedding => 0,
            Some(maximum) => maximum.min(cap),
            None => settings.output,
        };
        TokenEstimate::new(
            text.saturating_add(media).min(MAX_NUMBER),
            output.saturating_mul(self.times).min(MAX_NUMBER),
            self.maximum.is_some(),
        )
    }
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Whether a body is an object in some encoding. Some servers detect UTF-16 and UTF-32, with or without a mark.
fn begins_with_object(body: &[u8]) -> bool {
    let skipped = |byte: &u8| {
        matches!(
            byte,
            b' ' | b'\t' | b'\r' | b'\n' | 0 | 0xEF | 0xBB | 0xBF | 0xFE | 0xFF
        )
    };
    let mut bytes = body.iter().skip_while(|byte| skipped(byte));
    bytes.next() == Some(&b'{')
}

/// The name of a model without `models/`, which bodies of Gemini have in front of it.
fn without_collection(model: String) -> String {
    match model.strip_prefix("models/") {
        Some(name) => name.to_owned(),
        None => model,
    }
}

struct RequestSink<'p> {
    paths: &'p RequestPaths,
    /// The largest value of each maximum.
    maxima: SmallVec<[Option<u64>; 4]>,
    times: u64,
    model: Option<String>,
    is_stream: bool,
    /// After the bracket of the document.
    inside: usize,
    options: Option<StreamOptions>,
    /// Where strings are that may be media.
    long_strings: Vec<Range<usize>>,
}

/// The last `stream_options` of a request.
enum StreamOptions {
    /// Not an object: replaced as a whole.
    Scalar(Range<usize>),
    /// An array, which no server accepts: left as it is.
    Array,
    Object {
        /// After its bracket.
        inside: usize,
        is_empty: bool,
        /// The last `include_usage` in it: where it is, and whether it is true.
        include_usage: Option<(Range<usize>, bool)>,
    },
}

impl<'p> RequestSink<'p> {
    fn new(paths: &'p RequestPaths) -> Self {
        Self {
            paths,
            maxima: SmallVec::from_elem(None, paths.maximum.len()),
            times: 1,
            model: None,
            is_stream: false,
            inside: 0,
            options: None,
            long_strings: Vec::new(),
        }
    }

    fn maximum(&self) -> Option<u64> {
        self.maxima.iter().copied().flatten().next()
    }

    fn include_usage(&self, skipped: usize) -> Option<BodyEdit> {
        let (range, text) = match &self.options {
            None => (
                self.inside..self.inside,
                r#""stream_options":{"include_usage":true},"#,
            ),
            Some(StreamOptions::Scalar(range)) => (range.clone(), r#"{"include_usage":true}"#),
            Some(
                StreamOptions::Array
                | StreamOptions::Object {
                    include_usage: Some((_, true)),
                    ..
                },
            ) => return None,
            Some(StreamOptions::Object {
                include_usage: Some((range, false)),
                ..
            }) => (range.clone(), "true"),
            Some(StreamOptions::Object {
                inside, is_empty, ..
            }) => {
                let text = if *is_empty {
                    r#""include_usage":true"#
                } else {
                    r#""include_usage":true,"#
                };
                (*inside..*inside, text)
            }
        };
        let range = range.start + skipped..range.end + skipped;
        Some(BodyEdit { range, text })
    }

    fn found_options(&mut self, value: JsonValue<'_>, span: Range<usize>) {
        match (value, &mut self.options) {
            (JsonValue::ObjectBegins, options) => {
                *options = Some(StreamOptions::Object {
                    inside: span.end,
                    is_empty: true,
                    include_usage: None,
                });
            }
            (
                JsonValue::ObjectEnds { is_empty: now },
                Some(StreamOptions::Object { is_empty, .. }),
            ) => {
                *is_empty = now;
            }
            (JsonValue::ObjectEnds { .. } | JsonValue::ArrayEnds { .. }, _) => {}
            (JsonValue::ArrayBegins, options) => *options = Some(StreamOptions::Array),
            (_, options) => *options = Some(StreamOptions::Scalar(span)),
        }
    }

    fn found_include_usage(&mut self, value: JsonValue<'_>, span: Range<usize>) {
        if let Some(StreamOptions::Object { include_usage, .. }) = &mut self.options {
            match value {
                JsonValue::Bool(is_true) => *include_usage = Some((span, is_true)),
                JsonValue::Null | JsonValue::Number(_) | JsonValue::String(_) => {
                    *include_usage = Some((span, false));
                }
                // No server accepts it.
                _ => {}
            }
        }
    }
}

impl JsonSink for RequestSink<'_> {
    fn passed_string(&mut self, span: Range<usize>) {
        if span.len() > LONGEST_TEXT {
            self.long_strings.push(span);
        }
    }

    fn found(&mut self, node: NodeId, value: JsonValue<'_>, span: Range<usize>) {
        let number = match value {
            JsonValue::Number(WholeNumber::Value(number)) => Some(number),
            JsonValue::Number(WholeNumber::TooLarge) => Some(MAX_NUMBER),
            _ => None,
        };
        if let Some(number) = number.filter(|&number| number >= 1) {
            for (nodes, known) in self.paths.maximum.iter().zip(&mut self.maxima) {
                if nodes.contains(&node) {
                    *known = (*known).max(Some(number));
                }
            }
            if self.paths.times.contains(&node) {
                self.times = self.times.max(number);
            }
        }
        if node == ROOT && value == JsonValue::ObjectBegins {
            self.inside = span.end;
        } else if node == self.paths.model {
            if let JsonValue::String(model) = value {
                let model = String::from_utf8(model.to_vec()).ok();
                self.model = model.filter(|model| !model.is_empty());
            }
        } else if node == self.paths.stream {
            self.is_stream = value == JsonValue::Bool(true);
        } else if node == self.paths.stream_options {
            self.found_options(value, span);
        } else if node == self.paths.include_usage {
            self.found_include_usage(value, span);
        }
    }
}

#[cfg(test)]
mod tests;
