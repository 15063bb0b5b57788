//! Sizes: `64MiB`, `1GiB`.

pub(super) fn activity_memory(text: &str) -> Result<usize, String> {
    size(text, 1, ", or `activity: off`")
}

pub(super) fn at_least_1_mib(text: &str) -> Result<usize, String> {
    size(text, 1, "")
}

/// A size of at least `least` MiB. `or` names the alternative, for the message.
fn size(text: &str, least: usize, or: &str) -> Result<usize, String> {
    let bytes = bytes_of(text).and_then(|bytes| usize::try_from(bytes).ok());
    match bytes {
        Some(bytes) if bytes >= least << 20 => Ok(bytes),
        Some(_) => Err(format!(
            "`{text}` is too little; write at least `{least}MiB`{or}"
        )),
        None => Err(format!(
            "`{text}` is not a size; write for example `64MiB` or `1GiB`"
        )),
    }
}

/// `64MiB`, with `B`, `kB`, `KiB`, `MB`, `GB` and `GiB` too.
pub(super) fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}
