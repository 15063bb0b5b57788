//! Storage for small files that survive a restart, provided by the program.

use std::error::Error;

/// Small files that survive a restart.
pub trait KeptFiles: Send + Sync {
    /// The content of a file, if there is one.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Box<dyn Error + Send + Sync>>;

    /// Writes a file atomically. Waits for the disk.
    fn write(&self, name: &str, text: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Whether files can be written.
    fn is_writable(&self) -> bool;
}
