//! The server as a process: what it needs to start, signals, restarts, kills, full disks, what it uses of the machine.
//!
//! Nothing here waits for a time to pass: what is awaited is an answer, a line of the log, or the end of a process.

mod bench;
mod budgets;
mod clients;
mod console;
mod envoy_ratelimit;
mod full_disk;
mod gateway;
mod kept_counters;
mod killed;
mod logs;
mod made_token;
mod mistakes;
mod promoting;
mod random;
mod read_only;
mod reasons;
mod refused_starts;
mod resources;
mod signals;
mod simulating;
mod starts;
mod terminal;
mod tls;
mod top;
mod undo;
mod variables;
