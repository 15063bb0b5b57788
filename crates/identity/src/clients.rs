//! The table of clients: the attributes of each API key. Keys are stored as hashes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tidegate::document::{Fields, Key, Kind, Node, Problems, Source, Spot, Value};

use crate::IdentityError;

/// The prefix of a key that is given as a hash.
const HASHED: &str = "sha256:";

type Hash = [u8; 32];

/// The attributes of each key.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_key: HashMap<Hash, ClientRecord>,
}

/// The attributes of one key.
#[derive(Debug, Clone)]
pub(crate) struct ClientRecord(Arc<[(Box<str>, Box<str>)]>);

impl ClientRecord {
    pub(crate) fn column(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(column, _)| &**column == name)?;
        Some(&found.1)
    }
}

impl Clients {
    /// Reads the table in a file. No error repeats a key.
    pub(crate) fn read(file: &Path) -> Result<Self, IdentityError> {
        Self::read_with(file, &mut |_| {})
    }

    /// The keys in a file that are meant. Those that are written as hashes are not known.
    pub(crate) fn find_keys(
        file: &Path,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, IdentityError> {
        let mut keys = Vec::new();
        Self::read_with(file, &mut |key| {
            if !key.starts_with(HASHED) && is_meant(key) {
                keys.push(key.to_owned());
            }
        })?;
        Ok(keys)
    }

    /// Reads the table in a file, and shows each key as it is written.
    fn read_with(file: &Path, see_key: &mut dyn FnMut(&str)) -> Result<Self, IdentityError> {
        let text = std::fs::read_to_string(file).map_err(|source| IdentityError::Unreadable {
            file: file.to_owned(),
            source,
        })?;
        let source = Source::new(file.display().to_string(), text);
        let mut problems = Problems::new();
        let clients = source
            .read(&mut problems)
            .and_then(|node| clients(&node, &mut problems, see_key));
        match clients {
            Some(clients) if !problems.has_errors() => Ok(clients),
            _ => {
                problems.sort();
                let text = problems.render_hiding(&source, |_| true);
                Err(IdentityError::Clients(text))
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<ClientRecord> {
        self.by_key.get(&hash(key)).cloned()
    }
}

static TABLE: [Key; 1] = [Key::new(
    "clients",
    Kind::MapOf("", &Kind::MapOf("", &Kind::Text(""))),
    "the attributes of each key",
)];

fn clients(node: &Node, problems: &mut Problems, see_key: &mut dyn FnMut(&str)) -> Option<Clients> {
    let fields = Fields::new(node, Spot::document(), &TABLE, problems)?;
    if fields.key("clients").is_none() {
        // The message quotes nothing of the file: it may be a key.
        let message = "a table of clients begins with `clients:`";
        problems.error(&node.place, fields.spot(), message);
        return None;
    }
    let table = fields.take("clients");
    fields.done(problems);
    let Some((spot, table)) = table else {
        return Some(Clients::default());
    };
    let Value::Map(entries) = &table.value else {
        let message =
            "this must be a map of keys, each with its attributes: `k1: {user_id: u1, tier: pro}`";
        problems.error(&table.place, &spot, message);
        return None;
    };
    let mut by_key = HashMap::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        // Named by its index, as the key is a secret.
        let spot = spot.item(index);
        see_key(&entry.key);
        let columns = columns(&entry.value, &spot, problems);
        let Some(hash) = hash_of(&entry.key) else {
            let message =
                "after `sha256:` this must have the 64 hexadecimal digits of the key's hash";
            problems.error(&entry.key_place, &spot, message);
            continue;
        };
        if by_key.insert(hash, columns).is_some() {
            let message = "this key is there twice; keep one";
            problems.error(&entry.key_place, &spot, message);
        }
    }
    Some(Clients { by_key })
}

fn columns(node: &Node, spot: &Spot, problems: &mut Problems) -> ClientRecord {
    if matches!(node.value, Value::Null) {
        return ClientRecord(Arc::default());
    }
    let mut columns: Vec<(Box<str>, Box<str>)> = Vec::new();
    for entry in spot.entries(node, problems) {
        let spot = spot.field(&entry.key);
        if let Some(text) = spot.text(&entry.value, problems) {
            columns.push((entry.key.as_str().into(), text.into()));
        }
    }
    ClientRecord(columns.into())
}

fn hash(key: &[u8]) -> Hash {
    Sha256::digest(key).into()
}

/// The hash of a key as it is written in a table.
fn hash_of(written: &str) -> Option<Hash> {
    let Some(digits) = written.strip_prefix(HASHED) else {
        return Some(hash(written.as_bytes()));
    };
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Clients, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("clients.yaml");
        std::fs::write(&file, text).unwrap();
        Clients::read(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn clients_are_found_by_their_key_or_its_hash() {
        let text = "clients:\n  k1: {user_id: u1, tier: pro, seats: 007}\n  k3:\n";
        let clients = read(text).unwrap();
        assert_eq!(clients.len(), 2);
        let client = clients.find(b"k1").unwrap();
        assert_eq!(client.column("user_id"), Some("u1"));
        assert_eq!(client.column("seats"), Some("007"));
        assert_eq!(client.column("plan"), None);
        assert!(clients.find(b"k3").unwrap().column("tier").is_none());
        assert!(clients.find(b"made-up").is_none());
        // The output of `printf %s k2 | sha256sum`.
        let hashed = "015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
        let clients = read(&format!("clients:\n  sha256:{hashed}: {{tier: free}}\n")).unwrap();
        assert_eq!(clients.find(b"k2").unwrap().column("tier"), Some("free"));
        assert!(
            clients
                .find(format!("sha256:{hashed}").as_bytes())
                .is_none()
        );
        assert_eq!(read("clients:\n").unwrap().len(), 0);
    }

    #[test]
    fn keys_are_found_in_the_file_and_hashes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("clients.yaml");
        let hashed = "015f7e6bc5aeaf483724089e9252cc13b50951a6b69412522765cff4d780306e";
        let table =
            format!("clients:\n  k1: {{}}\n  k2x: {{}}\n  j: {{}}\n  sha256:{hashed}: {{}}\n");
        std::fs::write(&file, table).unwrap();
        let find = |start: &str| Clients::find_keys(&file, |key| key.starts_with(start)).unwrap();
        assert_eq!(find("k"), ["k1", "k2x"]);
        assert!(find("sha256").is_empty() && find("x").is_empty());
        std::fs::write(&file, "k1").unwrap();
        assert!(Clients::find_keys(&file, |_| true).is_err());
    }

    #[test]
    fn problems_are_reported_without_the_keys() {
        #[rustfmt::skip]
        let table = [
            ("clients:\n  s3cret: [a]\n",                           "2:11: field `clients[0]`: this must be a map"),
            ("clients:\n  s3cret: {tier: [a]}\n",                   "field `clients[0].tier`: this must be text"),
            ("clients:\n  s3cret: {tier: a}\n  s3cret: {}\n",       "3:3: field `clients[1]`: this key is there twice"),
            ("clients:\n  sha256:s3cret: {}\n",                     "field `clients[0]`: after `sha256:` this must have the 64"),
            ("clients: [s3cret]\n",                                 "field `clients`: this must be a map of keys"),
            ("s3cret: {}\n",                                        "a table of clients begins with `clients:`"),
        ];
        for (text, expected) in table {
            let problems = read(text).unwrap_err();
            assert!(
                problems.contains(expected),
                "{text}\n{expected}\n---\n{problems}"
            );
            assert!(!problems.contains("s3cret"), "{text}\n---\n{problems}");
        }
    }
}
