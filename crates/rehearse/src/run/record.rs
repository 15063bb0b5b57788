//! Writes decisions down in the form of a recording.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use tidegate::Timestamp;
use tidegate::gate::Observed;
use tidegate::rules::RuleSet;
use tidegate_codec::record::{RecordHeader, RecordedAttributes, write_decision};

use super::shown::ClientNames;

/// The version of rules that were never in force.
const NO_VERSION: u64 = 0;

/// Writes each decision as a line.
pub(crate) struct DecisionWriter {
    file: BufWriter<Box<dyn Write>>,
    recorded: RecordedAttributes,
    line: Vec<u8>,
}

impl DecisionWriter {
    pub(crate) fn new(
        file: Box<dyn Write>,
        rules: &RuleSet,
        names: &ClientNames,
    ) -> io::Result<Self> {
        let digest = Arc::new(names.digest.clone());
        let mut settings = names.settings.clone();
        let listed = &mut settings.secret_attributes;
        listed.extend(names.secret_sources.iter().cloned());
        if names.anonymous {
            let read = rules.read_names().into_iter().flatten();
            listed.extend(read.map(str::to_owned));
        }
        let recorded = RecordedAttributes::new(rules, &settings, &digest);
        let recorded = recorded.simulated(names.anonymous);
        let mut header = RecordHeader::new(env!("CARGO_PKG_VERSION"), NO_VERSION, &recorded);
        let RecordHeader {
            attributes, secret, ..
        } = &mut header;
        let is_other =
            |name: &String| names.secret_sources.contains(name) && !names.settings.is_secret(name);
        secret.retain(|name| !is_other(name) || attributes.contains(name));
        let mut line = Vec::new();
        header.write(&mut line);
        let mut file = BufWriter::new(file);
        file.write_all(&line)?;
        Ok(Self {
            file,
            recorded,
            line,
        })
    }

    pub(crate) fn write(&mut self, observed: &Observed<'_, '_>, time: u64) -> io::Result<()> {
        self.line.clear();
        let at = Timestamp::from_micros(time);
        write_decision(&mut self.line, observed, at, &self.recorded);
        self.file.write_all(&self.line)
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
