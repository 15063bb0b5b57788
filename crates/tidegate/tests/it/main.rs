//! The library from outside: rules as they are read and written, the gate, the limiter.

mod broken;
mod descriptor_sources;
mod gate;
mod limiter;
mod rules;
