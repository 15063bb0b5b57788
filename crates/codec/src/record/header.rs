//! The first line of each file of a recording: what the lines after it are.

use serde::Deserialize;
use tidegate::rules::KeyShare;

use super::attributes::RecordedAttributes;
use super::text::{list, quoted};
use crate::json::answer::integer;
use crate::write_seconds;

/// The version of the form.
const FORM: u64 = 1;

/// What a recording says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    /// The version of the program.
    pub version: String,
    /// The version of the rules in force.
    pub rules_version: u64,
    /// The names of the attributes that are recorded; `*` for all.
    pub attributes: Vec<String>,
    /// The names of those that are recorded as digests.
    pub secret: Vec<String>,
    /// The share of the clients that are recorded.
    pub sample: KeyShare,
    /// The attributes that clients are sampled by.
    pub sample_by: Vec<String>,
}

/// What a file must have in common with a recording that continues it.
#[derive(Debug, Deserialize)]
struct Continued {
    tidegate_record: u64,
    version: String,
    secret: Vec<String>,
    sample: f64,
    sample_by: Option<Vec<String>>,
}

impl RecordHeader {
    /// The header of a recording of all requests by these rules.
    pub fn new(version: &str, rules_version: u64, attributes: &RecordedAttributes) -> Self {
        Self {
            version: version.to_owned(),
            rules_version,
            attributes: attributes.names().map(str::to_owned).collect(),
            secret: attributes.secret().map(str::to_owned).collect(),
            sample: KeyShare::ALL,
            sample_by: Vec::new(),
        }
    }

    /// The same header, for a share of the clients by these attributes.
    #[must_use]
    pub fn sampled(self, sample: KeyShare, sample_by: &[String]) -> Self {
        Self {
            sample,
            sample_by: sample_by.to_owned(),
            ..self
        }
    }

    /// Writes it as a line.
    pub fn write(&self, out: &mut Vec<u8>) {
        let names = |out: &mut Vec<u8>, names: &[String]| {
            list(out, *b"[]", names.iter(), |out, name| quoted(out, name));
        };
        out.extend_from_slice(br#"{"tidegate_record":"#);
        integer(out, FORM);
        out.extend_from_slice(br#","version":"#);
        quoted(out, &self.version);
        out.extend_from_slice(br#","rules_version":"#);
        integer(out, self.rules_version);
        out.extend_from_slice(br#","attributes":"#);
        names(out, &self.attributes);
        out.extend_from_slice(br#","secret":"#);
        names(out, &self.secret);
        out.extend_from_slice(br#","sample":"#);
        // A hundredth of a percent is a hundred millionths.
        write_seconds(out, u64::from(self.sample.hundredths()) * 100);
        out.extend_from_slice(br#","sample_by":"#);
        if self.sample_by.is_empty() {
            out.extend_from_slice(b"null");
        } else {
            names(out, &self.sample_by);
        }
        out.extend_from_slice(b"}\n");
    }

    /// Whether lines under this header may follow in a file that begins with `first`: the lines before them have the
    /// same form, sample and secrets. None if that is not the header of a recording.
    pub fn continues(&self, first: &[u8]) -> Option<bool> {
        let read: Continued = serde_json::from_slice(first).ok()?;
        let mut own = Vec::new();
        self.write(&mut own);
        let own: Continued = serde_json::from_slice(&own).ok()?;
        let is_same_sample =
            read.sample.to_bits() == own.sample.to_bits() && read.sample_by == own.sample_by;
        Some(
            read.tidegate_record == FORM
                && read.version == own.version
                && read.secret == own.secret
                && is_same_sample,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            version: "0.2.0".to_owned(),
            rules_version: 5,
            attributes: vec!["ip".to_owned(), "path".to_owned()],
            secret: vec!["api_key".to_owned()],
            sample: KeyShare::ALL,
            sample_by: Vec::new(),
        }
    }

    fn line(header: &RecordHeader) -> String {
        let mut out = Vec::new();
        header.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn headers_by_hand() {
        assert_eq!(
            line(&header()),
            r#"{"tidegate_record":1,"version":"0.2.0","rules_version":5,"attributes":["ip","path"],"secret":["api_key"],"sample":1,"sample_by":null}"#
                .to_owned()
                + "\n"
        );
        let sampled = header().sampled("0.25%".parse().unwrap(), &["ip".to_owned()]);
        let sampled = line(&sampled);
        assert!(
            sampled.ends_with("\"sample\":0.0025,\"sample_by\":[\"ip\"]}\n"),
            "{sampled}"
        );
    }

    #[test]
    fn a_file_is_continued_only_by_lines_of_the_same_kind() {
        let first = line(&header());
        let continues = |header: RecordHeader| header.continues(first.as_bytes());
        let later = RecordHeader {
            rules_version: 6,
            attributes: Vec::new(),
            ..header()
        };
        assert_eq!(continues(later), Some(true));
        let by = ["ip".to_owned()];
        assert_eq!(
            continues(header().sampled("10%".parse().unwrap(), &by)),
            Some(false)
        );
        assert_eq!(
            continues(RecordHeader {
                version: "0.3.0".to_owned(),
                ..header()
            }),
            Some(false)
        );
        assert_eq!(
            continues(RecordHeader {
                secret: by.to_vec(),
                ..header()
            }),
            Some(false)
        );
        for other in ["", "rules:\n", "{}", "[1]", r#"{"t":1,"front_end":"http"}"#] {
            assert_eq!(header().continues(other.as_bytes()), None, "{other}");
        }
    }
}
