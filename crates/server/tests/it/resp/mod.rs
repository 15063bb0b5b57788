//! The protocol of Redis, by the programs that come with Redis and byte by byte.

mod access;
mod bytes;
mod client;
mod commands;
mod programs;
mod shared;

pub(crate) use client::{Client, Value};

use crate::Server;
use tidegate_testkit_server::TestFolder;

/// A server that speaks it on a free port.
fn serve(folder: &TestFolder, arguments: &[&str]) -> Server {
    folder.serve(&[&["--resp", "127.0.0.1:0"], arguments].concat())
}
