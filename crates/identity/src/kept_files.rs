//! Storage for small files that survive a restart, provided by the program.

use std::error::Error;

/// Small files that survive a restart.
pub trait KeptFiles: Send + Sync {
    /// Passes the content of a file to `decode`, if there is one. Logs the consequence if it cannot be used. One that
    /// is damaged, for which `decode` returns false, is set aside.
    fn load(&self, name: &str, consequence: &str, decode: &mut dyn FnMut(&[u8]) -> bool);

    /// Writes a file atomically. Waits for the disk.
    fn write(&self, name: &str, text: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Whether files can be written.
    fn is_writable(&self) -> bool;
}
