//! The files of the data directory, for the fuzzers. Not a part of the API.

use crate::data_dir::{self, BadVersion, NewVersion, RulesVersion};

/// The version that this text keeps under this number.
pub fn decode_version(number: u64, text: &[u8]) -> Result<RulesVersion, BadVersion> {
    data_dir::decode(number, text)
}

/// The text of the file that keeps `new` under this number.
pub fn encode_version(number: u64, new: &NewVersion) -> Result<Vec<u8>, BadVersion> {
    data_dir::encode(number, new)
}

/// A JSON object with the checksum that its file needs.
pub fn seal(object: &str) -> Vec<u8> {
    data_dir::seal(object)
}
