//! The setting `record`: the file that decisions are recorded to, of which clients, and when it is rotated.

use std::path::PathBuf;

use tidegate::document::{Entry, Fields, Node, Problems, Spot, Value};
use tidegate::rules::KeyShare;

use super::read::{attribute_name, number, setting};
use super::settings::{RECORD, ROTATE};
use super::size::bytes_of;

/// The smallest size at which a file is rotated: room for a header and some lines.
const LEAST: u64 = 1 << 10;

/// Where and what is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSettings {
    /// The file.
    pub file: PathBuf,
    /// The share of the clients that are recorded.
    pub sample: KeyShare,
    /// The attributes that tell clients apart; empty if all are recorded.
    pub sample_by: Vec<String>,
    /// The size at which the file is rotated, in bytes.
    pub size: u64,
    /// How many rotated files are kept.
    pub keep: u32,
}

/// The settings, if decisions are recorded: a file, or a map.
pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<RecordSettings> {
    let (spot, node) = fields.take("record")?;
    if let Value::Map(_) = node.value {
        return read_map(node, spot, problems);
    }
    match spot.text(node, problems)? {
        "off" => None,
        "" => {
            let message = "write `off`, the path of a file, or a map with `file`";
            problems.error(&node.place, &spot, message);
            None
        }
        _ => {
            let file = Entry {
                key: "file".to_owned(),
                key_place: node.place.clone(),
                value: node.clone(),
            };
            read_map(&map(vec![file], node), spot, problems)
        }
    }
}

fn read_map(node: &Node, spot: Spot, problems: &mut Problems) -> Option<RecordSettings> {
    let fields = Fields::new(node, spot, &RECORD, problems)?;
    let file = fields.parsed("file", file, problems);
    if fields.take("file").is_none() {
        let message = "give `file`, the file that decisions are recorded to";
        problems.error(&node.place, fields.spot(), message);
    }
    let sample = setting(&fields, "sample", sample, problems);
    let sample_by = fields.list("sample_by", attribute_name, problems);
    let is_sampled = sample.is_some_and(|sample| sample < KeyShare::ALL);
    if let (true, [], Some((spot, node))) = (is_sampled, &sample_by[..], fields.take("sample")) {
        let message = "a share is one of clients; name the attributes that tell them apart in `sample_by`, such as `[ip]`";
        problems.error(&node.place, &spot, message);
    }
    if let (Some((spot, node)), Some(name)) = (fields.take("sample_by"), repeated(&sample_by)) {
        let message = format!("`{name}` is listed twice; leave one out");
        problems.error(&node.place, &spot, message);
    }
    let (size, keep) = match fields.take("rotate") {
        Some((spot, node)) => rotate(node, spot, problems),
        None => rotate(&map(Vec::new(), node), fields.spot().clone(), problems),
    }?;
    fields.done(problems);
    Some(RecordSettings {
        file: file?,
        sample: sample?,
        sample_by: if is_sampled { sample_by } else { Vec::new() },
        size,
        keep,
    })
}

fn rotate(node: &Node, spot: Spot, problems: &mut Problems) -> Option<(u64, u32)> {
    let fields = Fields::new(node, spot, &ROTATE, problems)?;
    let size = setting(&fields, "size", size, problems);
    let keep = number(&fields, "keep", problems);
    fields.done(problems);
    Some((size?, keep?))
}

fn map(entries: Vec<Entry>, like: &Node) -> Node {
    Node {
        value: Value::Map(entries),
        place: like.place.clone(),
    }
}

fn file(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "" => Err("write the path of a file"),
        text => Ok(PathBuf::from(text)),
    }
}

fn sample(text: &str) -> Result<KeyShare, String> {
    let sample: KeyShare = text.parse()?;
    if sample.hundredths() == 0 {
        return Err(format!(
            "`{text}` records nothing; write more, or `record: off`"
        ));
    }
    Ok(sample)
}

fn size(text: &str) -> Result<u64, String> {
    match bytes_of(text) {
        Some(bytes) if bytes >= LEAST => Ok(bytes),
        Some(_) => Err(format!("`{text}` is too little; write at least `1KiB`")),
        None => Err(format!(
            "`{text}` is not a size; write for example `100MiB`"
        )),
    }
}

/// A name that is listed more than once.
fn repeated(names: &[String]) -> Option<&String> {
    let is_repeated = |(index, name): &(usize, &String)| names[..*index].contains(name);
    let mut numbered = names.iter().enumerate();
    numbered.find(is_repeated).map(|(_, name)| name)
}
