//! The Tidegate service as a library: front ends, admin API, rule sources and telemetry.
